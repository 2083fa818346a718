#include "runtime/task/worker_task.h"

#include <filesystem>
#include <optional>

#include "base/core/annotations.h"
#include "base/core/failpoint.h"
#include "base/core/log.h"
#include "base/core/strings.h"
#include "base/metrics/bucket_message.h"
#include "base/process/files.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "runtime/catalog/catalog.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/coordinator/member_processes.h"
#include "runtime/coordinator/names.h"
#include "runtime/task/buffer_files.h"
#include "runtime/task/finish_record.h"
#include "runtime/task/memory_check.h"

namespace trainyard::runtime {
namespace {

// Steps between two lines of metrics.
constexpr std::int64_t kLogEvery = 5;
constexpr Duration kFinishCheck = std::chrono::milliseconds(50);
// Files of buffers beyond the checkpoints that are kept: of one in the making, and of one that
// never became whole.
constexpr int kSpareBuffers = 2;

}  // namespace

WorkerTask::WorkerTask(const TaskOptions& options)
    : options_(options), membership_(options.membership) {}

StatusOr<std::unique_ptr<WorkerTask>> WorkerTask::start(const TaskOptions& options) {
  std::unique_ptr<WorkerTask> task(new WorkerTask(options));
  TY_RETURN_IF_ERROR(task->build());
  return task;
}

StatusOr<ComputeDevice> WorkerTask::computeDevice() const {
  const v1::Training& training = options_.job.spec().training();
  if (training.model().simulated_step_seconds() > 0)
    return ComputeDevice{"", "computing is simulated"};
  const std::string wanted = training.has_device() ? training.device() : "Auto";
  TY_ASSIGN_OR_RETURN(
      const ComputeDevice device,
      chooseDevice(wanted, wanted == "CPU" ? GpuSupport{} : gpuSupport(), localRank(options_)));
  if (!device.name.empty()) setGpuArithmetic(training.deterministic());
  return device;
}

Status WorkerTask::build() {
  const v1::Training& training = options_.job.spec().training();
  TY_ASSIGN_OR_RETURN(const ComputeDevice device, computeDevice());
  setComputeThreads(options_.threads);
  tellCompute(device);
  TY_ASSIGN_OR_RETURN(data_, openData(training.data()));
  TY_INFO("data: {} training samples, {} for evaluation", data_.train->size(),
          data_.eval == nullptr ? 0 : data_.eval->size());
  const std::array<int, 3> shape = data_.train->shape();
  const auto seed = static_cast<std::uint64_t>(training.seed());
  TY_RETURN_IF_ERROR(checkWorkerMemory(options_.job, options_.id.index(), shape,
                                       data_.train->classes(),
                                       /*on_gpu=*/!device.name.empty()));
  TY_ASSIGN_OR_RETURN(
      model_, makeModel(training.model(), shape, data_.train->classes(), seed, device.name));
  if (data_.eval != nullptr) TY_RETURN_IF_ERROR(model_->canEvaluate());
  TY_RETURN_IF_ERROR(restoreModelBuffers());
  TY_RETURN_IF_ERROR(checkFit());
  TY_ASSIGN_OR_RETURN(layout_, modelLayout(training.model(), shape, data_.train->classes()));
  TY_RETURN_IF_ERROR(place());
  TY_ASSIGN_OR_RETURN(digest_, jobDigest(options_.job));
  const std::string metrics_dir = options_.id.index() == 0 ? options_.job_dir : "";
  TY_ASSIGN_OR_RETURN(
      log_, RunLog::open(options_.task_dir, metrics_dir, LearningRate(training.optimizer()),
                         kLogEvery, *options_.clock));
  openTimeline();
  // Which life of the coordinator's task made the record is not known here.
  finished_ = readFinish(options_.checkpointDir(), options_.job, /*created=*/0,
                         membership_.steps() > 0 ? membership_.steps() : training.steps());
  TY_RETURN_IF_ERROR(isRing(options_.job) ? synchronizeInRing(device) : synchronizeOverServers());
  TrainObserver& observer = *this;
  trainer_ =
      std::make_unique<Trainer>(data_, *model_, *synchronizer_, observer, seed, *options_.clock);
  return hostsCoordinator(options_) ? hostCoordinator() : absl::OkStatus();
}

// In the log, and for who reads of the run later. Training goes on without.
void WorkerTask::tellCompute(const ComputeDevice& device) const {
  const std::string libraries = mathLibraries();
  const std::string threads =
      fmt::format("computing with {} thread{} ({})", options_.threads,
                  options_.threads == 1 ? "" : "s", options_.threads_reason);
  TY_INFO("{}", libraries);
  TY_INFO("{}", threads);
  TY_INFO("{}", device.reason);
  const nlohmann::ordered_json json = {
      {"libraries", libraries}, {"threads", threads}, {"device", device.reason}};
  const Status written = replaceFile(options_.task_dir + "/compute.json", json.dump(2) + "\n");
  if (!written.ok()) TY_WARN("{}", fromAbsl(written.message()));
}

// Training goes on without it.
void WorkerTask::openTimeline() {
  const auto& annotations = options_.job.metadata().annotations();
  const auto wanted = annotations.find(kTimelineAnnotation);
  if (wanted == annotations.end() || wanted->second != "true") return;
  const auto index = options_.id.index();
  auto opened = Timeline::open(options_.job_dir + "/timeline.json", static_cast<int>(index),
                               memberName(options_.id.role(), index, processesPerPod(options_.job)),
                               *options_.clock);
  if (opened.ok()) {
    timeline_ = *std::move(opened);
  } else {
    TY_WARN("no timeline: {}", fromAbsl(opened.status().message()));
  }
}

void WorkerTask::onSpan(std::string_view name, std::int64_t step, TimePoint start, TimePoint end) {
  if (timeline_ != nullptr) timeline_->add({Lane::kTrainer, name, step, start, end});
}

// Data, model and batch belong together.
Status WorkerTask::checkFit() const {
  const v1::Training& training = options_.job.spec().training();
  const std::array<int, 3> shape = data_.train->shape();
  const InputShape implied = impliedInput(training);
  const bool laid_out = training.model().name() != "torchscript";  // by the data's shape
  if (laid_out && (implied.shape != shape || implied.classes != data_.train->classes())) {
    return invalidInput(
        "training.data",
        fmt::format("samples are {}x{}x{} with {} classes, the model is laid out for "
                    "{}x{}x{} with {}",
                    shape[0], shape[1], shape[2], data_.train->classes(), implied.shape[0],
                    implied.shape[1], implied.shape[2], implied.classes));
  }
  const bool global = training.has_global_batch_size();
  const int batch = global ? training.global_batch_size() : training.batch_size();
  if (batch <= data_.train->size()) return absl::OkStatus();
  return invalidInput(
      global ? "training.globalBatchSize" : "training.batchSize",
      fmt::format("{} is more than the {} training samples", batch, data_.train->size()));
}

// The newest of this run; a run that has none begins with those of initFrom's checkpoint, or with
// the model's own.
Status WorkerTask::restoreModelBuffers() {
  TY_ASSIGN_OR_RETURN(const bool own,
                      restoreBuffers(options_.checkpointDir(), std::nullopt, *model_));
  const std::string& init_from = options_.job.spec().training().init_from();
  if (own || init_from.empty()) return absl::OkStatus();
  // Whether the other run is there and fits is the parameter servers' to say, at a fresh start
  // only.
  const StatusOr<std::string> file = findManifest(init_from);
  if (!file.ok()) return absl::OkStatus();
  const StatusOr<Manifest> manifest = readManifest(*file);
  if (!manifest.ok()) return absl::OkStatus();
  return restoreBuffers(std::filesystem::path(*file).parent_path(), manifest->step, *model_)
      .status();
}

// The chief's, when the step is a checkpoint's. Training goes on without them.
void WorkerTask::saveModelBuffers(std::int64_t step) {
  saved_buffers_ = step;
  const int keep = options_.job.spec().training().checkpoint().keep() + kSpareBuffers;
  const Status saved = saveBuffers(options_.checkpointDir(), step, keep, *model_);
  if (!saved.ok()) TY_WARN("buffers of step {}: {}", step, fromAbsl(saved.message()));
}

// Where every version passes through the chief, the one that is to be kept. Otherwise others may
// have made it: then what the chief has after its next step, unless an earlier process of it has
// saved its own.
std::optional<std::int64_t> WorkerTask::buffersDue(std::int64_t version) {
  std::lock_guard lock(mutex_);
  if (version == view_.checkpoint_at() || version == view_.steps()) return version;
  if (!skips_versions_) return std::nullopt;
  const std::int64_t kept = std::max(view_.checkpoint_at(), view_.last_checkpoint());
  if (kept <= std::max<std::int64_t>(saved_buffers_, 0) || kept > version) return std::nullopt;
  if (hasBuffers(options_.checkpointDir(), kept)) return std::nullopt;
  return kept;
}

Status WorkerTask::onStep(const StepRecord& record) {
  if (options_.id.index() == 0) {
    if (const auto due = buffersDue(record.step + 1)) saveModelBuffers(*due);
  }
  return log_->onStep(record);
}

// Those of the last checkpoint, which the chief's own last step need not have made.
void WorkerTask::saveLastBuffers(const TrainEnd& end) {
  if (options_.id.index() != 0 || end.left || saved_buffers_ == end.step) return;
  if (end.stopped || !hasBuffers(options_.checkpointDir(), end.step)) saveModelBuffers(end.step);
}

WorkerTask::~WorkerTask() {
  if (link_ != nullptr) link_->stop();
  agent_.reset();
  if (coordinator_ != nullptr) coordinator_->stop();
  server_.reset();
  // The link asks synchronizer and keeper for reports, and they poke the link.
  if (link_ != nullptr) link_->close();
  keeper_.reset();
  trainer_.reset();
  synchronizer_.reset();
}

v1::MemberReport WorkerTask::report() {
  v1::MemberReport report = identifiedMemberReport(options_, digest_);
  report.mutable_data()->set_samples(data_.train->size());
  report.mutable_data()->set_eval_samples(data_.eval == nullptr ? 0 : data_.eval->size());
  report.mutable_data()->set_sha256(data_.train->fingerprint());
  {
    std::lock_guard lock(mutex_);
    report.set_revision(membership_.revision());
  }
  synchronizer_->fillReport(report);
  if (keeper_ != nullptr) keeper_->fillReport(report);
  return report;
}

void WorkerTask::onView(const v1::View& view) {
  {
    std::lock_guard lock(mutex_);
    view_ = view;
  }
  log_->onEvaluation(view.evaluation());
  synchronizer_->onView(view);
  if (keeper_ != nullptr) keeper_->onView(view);
}

void WorkerTask::onDirective(const v1::RuntimeDirective& directive) {
  if (coordinator_ != nullptr) coordinator_->follow(directive);
  if (!directive.has_membership()) return;
  const v1::Membership members =
      memberProcesses(directive.membership(), processesPerPod(options_.job));
  {
    std::lock_guard lock(mutex_);
    if (members.revision() <= membership_.revision()) return;
    membership_ = members;
  }
  synchronizer_->setMembership(members);
  link_->setAddress(coordinatorAddress(options_.job, members));
  if (coordinator_ != nullptr) coordinator_->setMembership(members);
}

v1::Measurements WorkerTask::measurements() const {
  v1::Measurements measured = identifiedMeasurements(options_);
  const TrainTotals totals = trainer_->totals();
  setBuckets(*measured.mutable_step_times(), totals.step_times);
  setBuckets(*measured.mutable_staleness(), totals.staleness);
  measured.set_discarded(totals.too_late);
  synchronizer_->measure(measured);
  if (coordinator_ != nullptr) coordinator_->measure(measured);
  return measured;
}

v1::RuntimeReport WorkerTask::runtimeReport() {
  v1::RuntimeReport report = identifiedRuntimeReport(options_);
  const TrainTotals totals = trainer_->totals();
  report.set_phase(totals.phase);
  {
    std::lock_guard lock(mutex_);
    report.set_revision(membership_.revision());
    report.set_epoch(view_.epoch().epoch());
    report.set_message(view_.waiting_for());
    report.set_steps(view_.steps());
  }
  report.set_ready(totals.steps > 0 || std::string_view(totals.phase) != "Joining");
  report.set_step(totals.step);
  report.set_examples(totals.examples);
  report.set_completed_steps(totals.steps);
  report.set_step_seconds(totals.last_step_seconds);
  report.mutable_seconds()->set_data(totals.data_seconds);
  report.mutable_seconds()->set_compute(totals.compute_seconds);
  report.mutable_seconds()->set_push_pull(totals.wait_seconds);
  report.mutable_seconds()->set_evaluate(totals.evaluate_seconds);
  synchronizer_->fillTraffic(report);
  if (coordinator_ != nullptr) *report.mutable_job() = coordinator_->progress();
  return report;
}

// The coordinator's process stays until all have heard how the job ended. When this worker fails of
// itself, its successor goes on.
void WorkerTask::awaitOthers(const Status& end) {
  if (coordinator_ == nullptr) return;
  const bool over = end.ok() || coordinator_->phase() == v1::PHASE_FAILED;
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock lock(mutex);
  while (over && !coordinator_->finished()) never.wait_for(lock, kFinishCheck);
}

Status WorkerTask::run() {
  agent_ = std::make_unique<AgentLink>(
      options_.agent_target, options_.token, [this] { return runtimeReport(); },
      [this](const v1::RuntimeDirective& d) { onDirective(d); }, [this] { return measurements(); },
      options_.local_agent);
  link_ = std::make_unique<MemberLink>(
      MemberLink::Options{.identity = options_.keys.control}, *options_.clock,
      [this] { return report(); }, [this](const v1::View& v) { onView(v); });
  startKeeper();
  synchronizer_->setMembership(membership_);
  link_->setAddress(coordinatorAddress(options_.job, membership_));
  hitFailpoint("worker.start");
  agent_->start();
  link_->start();
  const StatusOr<TrainEnd> end = trainer_->run();
  if (end.ok() && end->left) TY_INFO("left on request, the job is at step {}", end->step);
  if (end.ok()) saveLastBuffers(*end);
  const TrainTotals totals = trainer_->totals();
  if (options_.job.spec().training().update().backup_workers() > 0)
    TY_INFO("{} gradients were taken, {} came too late", totals.steps, totals.too_late);
  hitFailpoint("worker.finished", trainer_->totals().step);
  // "leaving", so that the coordinator need not wait for this worker.
  link_->flush(std::chrono::seconds(2));
  awaitOthers(end.status());
  link_->stop();
  agent_->stop();
  hitFailpoint("worker.left", trainer_->totals().step);
  if (finished_ && absl::IsDeadlineExceeded(end.status())) {
    // It was killed when it had said that it leaves, and the others have left since.
    log_->onEvaluation(*finished_);
    return absl::OkStatus();
  }
  return end.status();
}

}  // namespace trainyard::runtime
