#include "runtime/task/worker_task.h"

#include <filesystem>
#include <optional>

#include "base/core/failpoint.h"
#include "base/core/log.h"
#include "base/core/strings.h"
#include "base/rpc/status_map.h"
#include "fmt/format.h"
#include "runtime/catalog/catalog.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/placement/placement_table.h"
#include "runtime/task/buffer_files.h"
#include "runtime/task/finish_record.h"
#include "runtime/task/memory_check.h"

namespace trainyard::runtime {
namespace {

// Chunks to one server that it has not received yet: enough to keep two connections busy.
constexpr std::size_t kWindow = 16;
// Chunks to one server that it has not answered yet, where workers keep abreast of each other: as
// few bytes as keep a link busy, because nothing comes back before the slowest worker has sent as
// much (measured with seven workers at links of 1 Gbit/s, and between processes of one machine).
constexpr std::size_t kLeastAbreast = 3;
constexpr std::int64_t kAbreastBytes = 1 << 20;
// How long a worker of a job that is over looks for the coordinator, which may have left.
constexpr Duration kOverPatience = std::chrono::seconds(5);
// Steps between two lines of metrics.
constexpr std::int64_t kLogEvery = 5;
// Files of buffers beyond the checkpoints that are kept: of one in the making, and of one that
// never became whole.
constexpr int kSpareBuffers = 2;

void setWindow(const v1::Training& training, const Placement& placement, ps::WorkerConfig& config) {
  // Clipping answers no chunk before the step's last one is in; asynchronous workers need not wait
  // for each other.
  config.window_until_answer = !config.asynchronous && !(training.optimizer().clip_norm() > 0);
  config.window = kWindow;
  if (!config.window_until_answer) return;
  std::int64_t largest = 1;
  for (const Chunk& chunk : placement.chunks) largest = std::max(largest, chunk.elements * 4);
  const auto fitting = static_cast<std::size_t>(kAbreastBytes / largest);
  config.window = std::clamp(fitting, kLeastAbreast, kWindow);
}

}  // namespace

WorkerTask::WorkerTask(const TaskOptions& options)
    : options_(options), membership_(options.membership) {}

StatusOr<std::unique_ptr<WorkerTask>> WorkerTask::start(const TaskOptions& options) {
  std::unique_ptr<WorkerTask> task(new WorkerTask(options));
  TY_RETURN_IF_ERROR(task->build());
  return task;
}

Status WorkerTask::build() {
  const v1::Training& training = options_.job.spec().training();
  setComputeThreads(options_.threads);
  const MathLibraries math = mathLibraries();
  TY_INFO("{}", math.description);
  if (math.slow_blas)
    TY_WARN("this BLAS is several times slower than OpenBLAS: install libopenblas0-openmp");
  TY_ASSIGN_OR_RETURN(data_, openData(training.data()));
  TY_INFO("data: {} training samples, {} for evaluation", data_.train->size(),
          data_.eval == nullptr ? 0 : data_.eval->size());
  const std::array<int, 3> shape = data_.train->shape();
  const auto seed = static_cast<std::uint64_t>(training.seed());
  TY_RETURN_IF_ERROR(checkWorkerMemory(options_.job.spec(), shape, data_.train->classes()));
  TY_ASSIGN_OR_RETURN(model_, makeModel(training.model(), shape, data_.train->classes(), seed));
  if (data_.eval != nullptr) TY_RETURN_IF_ERROR(model_->canEvaluate());
  TY_RETURN_IF_ERROR(restoreModelBuffers());
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
  TY_ASSIGN_OR_RETURN(const ModelLayout layout,
                      modelLayout(training.model(), shape, data_.train->classes()));
  int servers = 0;
  for (const v1::MemberTask& task : membership_.tasks()) servers += task.id().role() == v1::ROLE_PS;
  TY_ASSIGN_OR_RETURN(placement_,
                      place(training.placement(), layout.variables, servers,
                            std::max(servers, options_.job.spec().ps().max_replicas())));
  const bool global = training.has_global_batch_size();
  const int batch = global ? training.global_batch_size() : training.batch_size();
  if (batch > data_.train->size()) {
    return invalidInput(
        global ? "training.globalBatchSize" : "training.batchSize",
        fmt::format("{} is more than the {} training samples", batch, data_.train->size()));
  }
  TY_ASSIGN_OR_RETURN(digest_, jobDigest(options_.job));

  const std::string metrics_dir = options_.id.index() == 0 ? options_.job_dir : "";
  TY_ASSIGN_OR_RETURN(
      log_, RunLog::open(options_.task_dir, metrics_dir, LearningRate(training.optimizer()),
                         kLogEvery, *options_.clock));
  log_->setPlacement(placementTable(placement_));
  ps::PsSynchronizerOptions sync;
  sync.token = options_.token;
  sync.worker.job_uid = options_.job.metadata().uid();
  sync.worker.index = options_.id.index();
  sync.worker.self = options_.self;
  sync.worker.evaluates = data_.eval != nullptr;
  sync.worker.evaluate_every = training.evaluate_every_steps();
  sync.worker.asynchronous = isAsynchronous(training.update());
  setWindow(training, placement_, sync.worker);
  sync.worker.aggregate = std::max(1, training.update().aggregate());
  sync.ask = [this](const v1::TakeRequest& request, auto answer) {
    link_->take(request, [answer](const grpc::Status& status, const v1::TakeReply& reply) {
      answer(fromGrpc(status, "ask"), reply);
    });
  };
  finished_ = readFinish(options_.checkpointDir(), options_.job);
  if (finished_) sync.patience = kOverPatience;
  for (const Chunk& chunk : placement_.chunks) sync.worker.ps_of_chunk.push_back(chunk.ps);
  std::vector<std::span<float>> weights;
  for (std::size_t v = 0; v < model_->variables().size(); ++v)
    weights.push_back(model_->weights(static_cast<int>(v)));
  synchronizer_ = std::make_unique<ps::PsSynchronizer>(sync, placement_, std::move(weights),
                                                       *options_.clock, [this] {
                                                         if (link_ != nullptr) link_->poke();
                                                       });
  TrainObserver& observer = *this;
  trainer_ =
      std::make_unique<Trainer>(data_, *model_, *synchronizer_, observer, seed, *options_.clock);
  return absl::OkStatus();
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
  const int keep = options_.job.spec().training().checkpoint().keep() + kSpareBuffers;
  const Status saved = saveBuffers(options_.checkpointDir(), step, keep, *model_);
  if (!saved.ok()) TY_WARN("buffers of step {}: {}", step, fromAbsl(saved.message()));
}

Status WorkerTask::onStep(const StepRecord& record) {
  if (options_.id.index() == 0) {
    const std::int64_t version = record.step + 1;
    bool due = false;
    {
      std::lock_guard lock(mutex_);
      due = version == view_.checkpoint_at() || version == view_.steps();
    }
    if (due) saveModelBuffers(version);
  }
  return log_->onStep(record);
}

WorkerTask::~WorkerTask() {
  agent_.reset();
  // The link asks the synchronizer for reports, and the synchronizer pokes the link.
  if (link_ != nullptr) link_->close();
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
  return report;
}

void WorkerTask::onView(const v1::View& view) {
  {
    std::lock_guard lock(mutex_);
    view_ = view;
  }
  log_->onEvaluation(view.evaluation());
  synchronizer_->onView(view);
}

void WorkerTask::onDirective(const v1::RuntimeDirective& directive) {
  if (!directive.has_membership()) return;
  {
    std::lock_guard lock(mutex_);
    if (directive.membership().revision() <= membership_.revision()) return;
    membership_ = directive.membership();
  }
  synchronizer_->setServers(directive.membership());
  link_->setAddress(coordinatorAddress(directive.membership()));
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
  synchronizer_->traffic().fill(report);
  return report;
}

Status WorkerTask::run() {
  agent_ = std::make_unique<AgentLink>(
      options_.agent_target, options_.token, [this] { return runtimeReport(); },
      [this](const v1::RuntimeDirective& d) { onDirective(d); }, options_.local_agent);
  link_ = std::make_unique<MemberLink>(
      MemberLink::Options{.token = options_.token}, *options_.clock, [this] { return report(); },
      [this](const v1::View& v) { onView(v); });
  synchronizer_->setServers(membership_);
  link_->setAddress(coordinatorAddress(membership_));
  hitFailpoint("worker.start");
  agent_->start();
  link_->start();
  const StatusOr<TrainEnd> end = trainer_->run();
  if (end.ok() && end->left) TY_INFO("left on request, the job is at step {}", end->step);
  if (end.ok() && end->stopped && options_.id.index() == 0) saveModelBuffers(end->step);
  const TrainTotals totals = trainer_->totals();
  if (options_.job.spec().training().update().backup_workers() > 0)
    TY_INFO("{} gradients were taken, {} came too late", totals.steps, totals.too_late);
  hitFailpoint("worker.finished", trainer_->totals().step);
  // "leaving", so that the coordinator need not wait for this worker.
  link_->flush(std::chrono::seconds(2));
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
