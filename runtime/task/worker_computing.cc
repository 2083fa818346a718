#include "runtime/task/worker_computing.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/core/failpoint.h"
#include "base/core/log.h"
#include "base/core/strings.h"
#include "base/process/files.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "runtime/catalog/catalog.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/step_files.h"
#include "runtime/task/buffer_files.h"
#include "runtime/task/exchange_device.h"
#include "runtime/task/memory_check.h"

namespace trainyard::runtime {

StatusOr<std::unique_ptr<WorkerComputing>> WorkerComputing::make(const TaskOptions& options) {
  std::unique_ptr<WorkerComputing> computing(new WorkerComputing(options));
  TY_RETURN_IF_ERROR(computing->build());
  return computing;
}

StatusOr<ComputeDevice> WorkerComputing::chooseDevice() const {
  const v1::Training& training = options_.job.spec().training();
  if (training.model().simulated_step_seconds() > 0)
    return ComputeDevice{"", "computing is simulated"};
  if (training.tables_size() > 0 && training.device() == "GPU")
    return invalidInput("training.device", "GPU: models with tables compute on the processor");
  if (training.tables_size() > 0)
    return ComputeDevice{"", "models with tables compute on the processor"};
  const std::string wanted = training.has_device() ? training.device() : "Auto";
  TY_ASSIGN_OR_RETURN(const ComputeDevice device,
                      runtime::chooseDevice(wanted, wanted == "CPU" ? GpuSupport{} : gpuSupport(),
                                            localRank(options_)));
  if (!device.name.empty()) setGpuArithmetic(training.deterministic());
  return device;
}

Status WorkerComputing::build() {
  const v1::Training& training = options_.job.spec().training();
  TY_ASSIGN_OR_RETURN(device_, chooseDevice());
  setComputeThreads(options_.threads);
  tellCompute();
  TY_ASSIGN_OR_RETURN(data_, openData(training.data()));
  TY_INFO("data: {} training samples, {} for evaluation", data_.train->size(),
          data_.eval == nullptr ? 0 : data_.eval->size());
  TY_RETURN_IF_ERROR(openTables());
  const auto seed = static_cast<std::uint64_t>(training.seed());
  TY_RETURN_IF_ERROR(checkWorkerMemory(options_.job, options_.id.index(), input_.shape,
                                       input_.classes, /*on_gpu=*/!device_.name.empty()));
  TY_ASSIGN_OR_RETURN(model_, makeModel(training.model(), input_.shape, input_.classes, seed,
                                        device_.name, tables_));
  if (data_.eval != nullptr) TY_RETURN_IF_ERROR(model_->canEvaluate());
  TY_RETURN_IF_ERROR(restoreModelBuffers());
  return checkFit();
}

// What the model sees of the data: pictures, or all that tables and columns make of a sample.
Status WorkerComputing::openTables() {
  const v1::Training& training = options_.job.spec().training();
  input_ = {data_.train->shape(), data_.train->classes()};
  if (data_.train->columns().empty()) return absl::OkStatus();
  input_ = impliedInput(training);
  TY_ASSIGN_OR_RETURN(tables_, tableLookups(training, data_.train->columns()));
  if (tables_.empty()) return absl::OkStatus();
  row_ids_ = std::make_unique<StreamRowIds>(
      *data_.train, tables_, static_cast<std::uint64_t>(training.seed()), data_.order);
  return absl::OkStatus();
}

StatusOr<WorkerModel> WorkerComputing::model() {
  const v1::ModelSpec& spec = options_.job.spec().training().model();
  WorkerModel model;
  TY_ASSIGN_OR_RETURN(model.layout, modelLayout(spec, input_.shape, input_.classes));
  for (const TableLookup& table : tables_) model.tables.push_back({table.name, table.dim});
  if (row_ids_ != nullptr) {
    model.row_ids = [ids = row_ids_.get()](std::int64_t first, int count) {
      return ids->at(first, count);
    };
  }
  for (std::size_t v = 0; v < model_->variables().size(); ++v)
    model.weights.push_back(model_->weights(static_cast<int>(v)));
  model.samples = data_.train->size();
  model.evaluation_samples = data_.eval == nullptr ? 0 : data_.eval->size();
  model.data_sha256 = data_.train->fingerprint();
  if (!isRing(options_.job)) return model;
  model.device = exchangeDevice(device_);
  model.by_rows = model_->deliverRows();
  for (const int variable : model.by_rows)
    TY_INFO("{}: only the rows that a step uses are sent", model_->variables()[variable].name);
  return model;
}

void WorkerComputing::computeFor(WorkerMember& member) {
  member_ = &member;
  model_->deliverIn(member.synchronizer().gradientMemory());
  TrainObserver& observer = *this;
  trainer_ = std::make_unique<Trainer>(
      data_, *model_, member.synchronizer(), observer,
      static_cast<std::uint64_t>(options_.job.spec().training().seed()), *options_.clock, tables_);
}

StatusOr<TrainEnd> WorkerComputing::run() {
  StatusOr<TrainEnd> end = trainer_->run();
  if (end.ok() && end->left) TY_INFO("left on request, the job is at step {}", end->step);
  if (end.ok()) saveLastBuffers(*end);
  return end;
}

// In the log, and for who reads of the run later. Training goes on without.
void WorkerComputing::tellCompute() const {
  const std::string libraries = mathLibraries();
  const std::string threads =
      fmt::format("computing with {} thread{} ({})", options_.threads,
                  options_.threads == 1 ? "" : "s", options_.threads_reason);
  TY_INFO("{}", libraries);
  TY_INFO("{}", threads);
  TY_INFO("{}", device_.reason);
  const nlohmann::ordered_json json = {
      {"libraries", libraries}, {"threads", threads}, {"device", device_.reason}};
  const Status written = replaceFile(options_.task_dir + "/compute.json", json.dump(2) + "\n");
  if (!written.ok()) TY_WARN("{}", fromAbsl(written.message()));
}

// Data, model and batch belong together.
Status WorkerComputing::checkFit() const {
  const v1::Training& training = options_.job.spec().training();
  const std::array<int, 3> shape = input_.shape;
  const InputShape implied = impliedInput(training);
  const bool laid_out = training.model().name() != "torchscript";  // by the data's shape
  if (laid_out && (implied.shape != shape || implied.classes != input_.classes)) {
    return invalidInput(
        "training.data",
        fmt::format("samples are {}x{}x{} with {} classes, the model is laid out for "
                    "{}x{}x{} with {}",
                    shape[0], shape[1], shape[2], input_.classes, implied.shape[0],
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
Status WorkerComputing::restoreModelBuffers() {
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
void WorkerComputing::saveModelBuffers(std::int64_t step) {
  hitFailpoint("worker.beside", step);
  saved_buffers_ = step;
  const int keep = keptFiles(options_.job.spec().training().checkpoint().keep());
  const Status saved = saveBuffers(options_.checkpointDir(), step, keep, *model_);
  if (!saved.ok()) TY_WARN("buffers of step {}: {}", step, fromAbsl(saved.message()));
}

std::function<bool(std::int64_t)> WorkerComputing::hasSaved() const {
  return [this](std::int64_t step) { return hasBuffers(options_.checkpointDir(), step); };
}

Status WorkerComputing::onStep(const StepRecord& record) {
  if (isChief()) {
    for (const std::int64_t step : member_->keepDue(record.step + 1, saved_buffers_, hasSaved()))
      saveModelBuffers(step);
  }
  return member_->onStep(record);
}

void WorkerComputing::onSpan(std::string_view name, std::int64_t step, TimePoint start,
                             TimePoint end) {
  member_->onSpan(name, step, start, end);
}

// Those of the last checkpoints, which the chief's own last step need not have made. A finished job
// was scored with what there is now: a pass whose gradients came too late to count may have changed
// it since it was kept.
void WorkerComputing::saveLastBuffers(const TrainEnd& end) {
  if (!isChief() || end.left || (end.stopped && saved_buffers_ == end.step)) return;
  for (const std::int64_t step : member_->keepMissed(end.step, saved_buffers_, hasSaved()))
    saveModelBuffers(step);
  saveModelBuffers(end.step);
}

}  // namespace trainyard::runtime
