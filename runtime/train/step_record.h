// What a worker leaves behind of its steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/core/clock.h"
#include "base/core/status.h"

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
  std::optional<double> accuracy = {};  // of the same samples, see StepOutcome
  double seconds = 0;                   // wall time since the former step's end, if of this epoch
  double train_seconds = 0;             // of all completed steps so far, evaluation excluded
  std::optional<double> gradient_norm;  // with clipping: before it was clipped
};

// Called on the thread that computes.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  // An error ends the worker.
  virtual Status onStep(const StepRecord& record) = 0;
  // The thread did `name` for a step: data, compute, wait (for the synchronizer), update (by an
  // optimizer of the caller's own), evaluate.
  virtual void onSpan(std::string_view /*name*/, std::int64_t /*step*/, TimePoint /*start*/,
                      TimePoint /*end*/) {}
};

}  // namespace trainyard::runtime
