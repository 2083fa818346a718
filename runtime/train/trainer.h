// The step loop: data + model + synchronizer. Knows nothing of sockets, files or parameter servers.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "base/metrics/bucket_counts.h"
#include "base/metrics/catalogue.h"
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
  std::int64_t job_samples = 0;         // of all workers, in the same time
  double loss = 0;                      // mean over all workers' samples
  double seconds = 0;                   // wall time since the former step's end, if of this epoch
  double train_seconds = 0;             // of all completed steps so far, evaluation excluded
  std::optional<double> gradient_norm;  // with clipping: before it was clipped
};

// Called on the trainer's thread.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual Status onStep(const StepRecord& record) = 0;
  // The thread did `name` for a step: data, compute, wait (for the synchronizer), evaluate.
  virtual void onSpan(std::string_view /*name*/, std::int64_t /*step*/, TimePoint /*start*/,
                      TimePoint /*end*/) {}
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
  // Updates of others between the weights of a gradient and its own update.
  BucketCounts staleness{metric("trainyard_worker_staleness_steps").buckets};
  BucketCounts step_times{metric("trainyard_worker_step_duration_seconds").buckets};
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
  // What comes before the step's record: how long it took and what the job did meanwhile. Steps
  // that others took without this worker, and the time of its own that came too late, belong to the
  // next that is taken.
  void measure(const Turn& turn, const StepOutcome& outcome, TimePoint start, StepRecord* record);
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
  // The end of the last step that was recorded; nothing after an evaluation or a step that was
  // given up.
  struct Recorded {
    std::int64_t epoch = 0;
    std::int64_t step = 0;
    TimePoint end;
  };
  std::optional<Recorded> recorded_;
  double train_seconds_ = 0;
  mutable std::mutex mutex_;
  TrainTotals totals_;
};

}  // namespace trainyard::runtime
