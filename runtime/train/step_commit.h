// Strategy AllReduce, where every worker takes the step itself: Synchronizer::finish() in two
// halves, with the update between them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/core/status.h"
#include "runtime/train/gradient.h"
#include "runtime/train/synchronizer.h"

namespace trainyard::runtime {

// All gradients of a step are in.
struct SummedStep {
  std::int64_t step = 0;
  double loss = 0;                 // mean over all workers' samples
  std::optional<double> accuracy;  // see StepOutcome
  // Gradients by variable: means over all workers' samples, clipped where the job clips; the same
  // bits in all workers. To be read or written at will until the step is committed.
  std::vector<std::span<float>> means;
  std::optional<double> gradient_norm;  // with clipping: before it was clipped
};

// Used by the Synchronizer's thread.
class StepCommit {
 public:
  using Arrays = std::vector<std::span<float>>;  // by variable

  virtual ~StepCommit() = default;
  // After all pushes: waits until the gradients of all are in. Nothing: the step is not taken, as
  // with an outcome that is not complete. Otherwise it counts as taken from here on: until commit()
  // this worker joins no other epoch, so the update must follow at once. Who cannot make it ends
  // the process, and another one gets the version from its peers.
  // `means`: arrays that are to be SummedStep::means, where the caller has a place for them; they
  // may be written to before it is known whether the step is taken.
  virtual StatusOr<std::optional<SummedStep>> sum(const BatchLoss& loss, Arrays means = {}) = 0;
  // The next version is in place of the weights.
  virtual StepOutcome commit() = 0;
};

}  // namespace trainyard::runtime
