// What a worker leaves behind: positions.jsonl of every worker, and from the chief metrics.jsonl
// and TensorBoard events.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "base/process/unique_fd.h"
#include "runtime/events/metrics_writer.h"
#include "runtime/optimizer/optimizer.h"
#include "runtime/placement/placement.h"
#include "runtime/train/step_record.h"
#include "trainyard/v1/coordinator.pb.h"

namespace trainyard::runtime {

// A full disk must not stop training: the first failure is logged, then writing goes on being
// tried.
class RunLog : public TrainObserver {
 public:
  // `metrics_dir` is empty for all but the chief.
  static StatusOr<std::unique_ptr<RunLog>> open(const std::string& task_dir,
                                                std::string metrics_dir, LearningRate learning_rate,
                                                std::int64_t log_every, const Clock& clock);

  // What TensorBoard shows as the text "placement", and on its page Graphs; before the first
  // record.
  void setPlacement(const Placement& placement);

  Status onStep(const StepRecord& record) override;
  // The newest complete evaluation; each version is written once. Any thread.
  void onEvaluation(const v1::Evaluation& evaluation);

 private:
  RunLog(UniqueFd positions_fd, std::string metrics_dir, LearningRate learning_rate,
         std::int64_t log_every, const Clock& clock);
  void note(const Status& status);
  void begin(std::int64_t first_void, std::int64_t step);
  void recordStep(std::int64_t step, std::span<const Scalar> scalars);
  void writeScalars(std::int64_t step, std::span<const Scalar> scalars);

  const UniqueFd positions_fd_;
  const std::string metrics_dir_;
  const LearningRate learning_rate_;
  const std::int64_t log_every_;
  const Clock& clock_;
  std::string placement_;        // Markdown
  std::string placement_graph_;  // a GraphDef
  std::mutex mutex_;
  // Opened with the first record, and anew with the first of a step and when training goes back to
  // an earlier one: the records from there on are void.
  std::unique_ptr<MetricsWriter> metrics_;
  std::int64_t recorded_ = -1;  // step
  std::int64_t evaluated_ = -1;
  double window_seconds_ = 0;
  std::int64_t window_examples_ = 0;
  bool complained_ = false;
};

}  // namespace trainyard::runtime
