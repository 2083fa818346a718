#include "runtime/task/run_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <limits>
#include <vector>

#include "base/core/log.h"
#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/events/placement_graph.h"
#include "runtime/placement/placement_table.h"

namespace trainyard::runtime {
namespace {

// A step that ends so long after the last record is recorded whatever its number: curves of slow
// steps have points too.
constexpr double kLongSeconds = 5;
constexpr std::int64_t kNothingIsVoid = std::numeric_limits<std::int64_t>::max();

}  // namespace

StatusOr<std::unique_ptr<RunLog>> RunLog::open(const std::string& task_dir, std::string metrics_dir,
                                               LearningRate learning_rate, std::int64_t log_every,
                                               const Clock& clock) {
  const std::string path = task_dir + "/positions.jsonl";
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!fd.valid()) return errnoStatus(errno, path);
  std::unique_ptr<RunLog> log;
  log.reset(new RunLog(std::move(fd), std::move(metrics_dir), learning_rate, log_every, clock));
  return log;
}

RunLog::RunLog(UniqueFd positions_fd, std::string metrics_dir, LearningRate learning_rate,
               std::int64_t log_every, const Clock& clock)
    : positions_fd_(std::move(positions_fd)),
      metrics_dir_(std::move(metrics_dir)),
      learning_rate_(learning_rate),
      log_every_(log_every),
      clock_(clock) {}

void RunLog::setPlacement(const Placement& placement) {
  placement_ = placementTable(placement);
  placement_graph_ = placementGraph(placement);
}

void RunLog::note(const Status& status) {
  if (status.ok()) {
    complained_ = false;
    return;
  }
  if (!complained_)
    TY_WARN("the run's log is incomplete, training goes on: {}", fromAbsl(status.message()));
  complained_ = true;
}

// Records of `first_void` and later steps, of an earlier start or of before a return, are void.
void RunLog::begin(std::int64_t first_void, std::int64_t step) {
  metrics_.reset();
  auto opened = MetricsWriter::open(metrics_dir_, "chief", clock_.unixMillis(), first_void);
  if (!opened.ok()) return note(opened.status());
  metrics_ = std::move(*opened);
  if (placement_.empty()) return;
  note(metrics_->text(step, clock_.unixMillis(), "placement", placement_));
  note(metrics_->graph(clock_.unixMillis(), placement_graph_));
}

void RunLog::writeScalars(std::int64_t step, std::span<const Scalar> scalars) {
  if (metrics_ != nullptr) note(metrics_->record(step, clock_.unixMillis(), scalars));
}

void RunLog::recordStep(std::int64_t step, std::span<const Scalar> scalars) {
  if (metrics_ == nullptr || recorded_ < 0 || step < recorded_) begin(step, step);
  recorded_ = step;
  writeScalars(step, scalars);
}

Status RunLog::onStep(const StepRecord& record) {
  // One write per line: a kill leaves whole lines.
  const std::string line =
      fmt::format("{{\"epoch\":{},\"step\":{},\"rank\":{},\"first\":{},\"count\":{}}}\n",
                  record.epoch, record.step, record.rank, record.first_position, record.samples);
  std::lock_guard lock(mutex_);
  const ssize_t written = ::write(positions_fd_.get(), line.data(), line.size());
  note(written == static_cast<ssize_t>(line.size())
           ? absl::OkStatus()
           : errnoStatus(written < 0 ? errno : ENOSPC, "positions.jsonl"));
  if (metrics_dir_.empty()) return absl::OkStatus();
  window_seconds_ += record.seconds;
  window_examples_ += record.job_samples;
  const std::int64_t step = record.step + 1;  // the version that the step made
  const bool due = step % log_every_ == 0 || record.step == 0 || window_seconds_ >= kLongSeconds;
  if (!due) return absl::OkStatus();
  const double rate =
      window_seconds_ > 0 ? static_cast<double>(window_examples_) / window_seconds_ : 0;
  window_seconds_ = 0;
  window_examples_ = 0;
  std::vector<Scalar> scalars{{"loss", record.loss},
                              {"learning_rate", learning_rate_.at(record.step)},
                              {"examples_per_second", rate},
                              {"train_seconds", record.train_seconds}};
  if (record.accuracy) scalars.push_back({"training_accuracy", *record.accuracy});
  if (record.gradient_norm) scalars.push_back({"grad_norm", *record.gradient_norm});
  recordStep(step, scalars);
  return absl::OkStatus();
}

void RunLog::onEvaluation(const v1::Evaluation& evaluation) {
  if (metrics_dir_.empty() || evaluation.samples() == 0) return;
  std::lock_guard lock(mutex_);
  if (evaluation.version() <= evaluated_) return;
  evaluated_ = evaluation.version();
  const double samples = static_cast<double>(evaluation.samples());
  std::vector<Scalar> scalars{{"accuracy", static_cast<double>(evaluation.hits()) / samples},
                              {"evaluation_loss", evaluation.loss_sum() / samples}};
  if (evaluation.has_auc()) scalars.push_back({"auc", evaluation.auc()});
  if (evaluation.has_calibration()) scalars.push_back({"calibration", evaluation.calibration()});
  // Its result may come when later steps are recorded already, or from before this start.
  if (metrics_ == nullptr) begin(kNothingIsVoid, evaluation.version());
  writeScalars(evaluation.version(), scalars);
}

}  // namespace trainyard::runtime
