// The step loop: data + model + synchronizer. Knows nothing of sockets, files or parameter servers.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "runtime/data/dataset.h"
#include "runtime/model/model.h"
#include "runtime/train/synchronizer.h"

namespace trainyard::runtime {

// One completed step of this worker.
struct StepRecord {
  std::int64_t epoch = 0;
  std::int64_t step = 0;
  int rank = 0;
  std::int64_t first_position = 0;
  int samples = 0;                      // of this worker
  std::int64_t step_samples = 0;        // of all workers
  double loss = 0;                      // mean over all workers' samples
  double seconds = 0;                   // wall time of the step
  double train_seconds = 0;             // of all completed steps so far, evaluation excluded
  std::optional<double> gradient_norm;  // with clipping: before it was clipped
};

// Called on the trainer's thread.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual Status onStep(const StepRecord& record) = 0;
};

// Running totals, for reports.
struct TrainTotals {
  const char* phase = "Joining";
  std::int64_t step = 0;
  std::uint64_t examples = 0;
  std::uint64_t steps = 0;
  std::uint64_t too_late = 0;  // gradients that were computed, but not taken any more
  double last_step_seconds = 0;
  double data_seconds = 0;
  double compute_seconds = 0;
  double wait_seconds = 0;
  double evaluate_seconds = 0;
};

struct TrainEnd {
  bool stopped = false;  // on request, before the last step
  std::int64_t step = 0;
  bool left = false;  // the job goes on without this worker
};

class Trainer {
 public:
  // All must outlive the trainer.
  Trainer(const DataSplits& data, Model& model, Synchronizer& synchronizer, TrainObserver& observer,
          std::uint64_t seed, const Clock& clock);

  // Until the job is over. Errors: INVALID_ARGUMENT (refused), FAILED_PRECONDITION (the job
  // failed), or the model's own.
  StatusOr<TrainEnd> run();
  // Thread-safe.
  TrainTotals totals() const;

 private:
  Status trainStep(const Turn& turn);
  Status evaluateSlice(const Turn& turn);
  void phase(const char* name);

  const DataSplits& data_;
  Model& model_;
  Synchronizer& synchronizer_;
  TrainObserver& observer_;
  SampleStream stream_;
  const Clock& clock_;
  std::vector<std::int64_t> samples_;
  Batch batch_;
  double train_seconds_ = 0;
  mutable std::mutex mutex_;
  TrainTotals totals_;
};

}  // namespace trainyard::runtime
