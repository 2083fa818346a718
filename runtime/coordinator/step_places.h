// Backup workers: which gradients a step takes. The first that are complete get a place; for the
// others the step is over. (Chen et al., "Revisiting Distributed Synchronous SGD", 2016, section 3;
// TensorFlow's SyncReplicasOptimizer with replicas_to_aggregate below total_num_replicas.)
#pragma once

#include <cstdint>

#include "runtime/data/step_plan.h"

namespace trainyard::runtime {

// Not thread-safe. A step's places are given before any of the next one: only who has received a
// step's outcome asks for a place in the next.
class StepPlaces {
 public:
  void startEpoch(const StepPlan& plan);

  struct Answer {
    enum class Kind { kPlace, kSkip, kWait } kind = Kind::kWait;
    int place = 0;
    std::int64_t newest = 0;  // kSkip: the version to go on with; complete, or about to be
  };
  // A worker has the gradient of `step`, or only looks for the newest version.
  Answer ask(std::int64_t step, bool with_gradient);
  // From now on no step begins: the one that lacks gradients stays incomplete.
  void freeze() { frozen_ = true; }
  void resume() { frozen_ = false; }
  // The first step that still lacks gradients.
  std::int64_t step() const { return step_; }
  // Gradients that came too late, since construction.
  std::int64_t skipped() const { return skipped_; }

 private:
  StepPlan plan_;
  std::int64_t step_ = 0;
  int given_ = 0;  // places in step_
  bool frozen_ = false;
  std::int64_t skipped_ = 0;
};

}  // namespace trainyard::runtime
