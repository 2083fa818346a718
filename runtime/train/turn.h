// What a worker does next. A step s turns weights of version s (after s updates) into version s
// + 1.
#pragma once

#include <cstdint>

namespace trainyard::runtime {

// What to do next; decided under the current epoch.
struct Turn {
  enum class Kind {
    kTrain,     // weights of version `step` are in place: compute step `step` at `first_position`
    kEvaluate,  // weights of version `step` are in place: evaluate slice rank/ranks
    kDone,      // all steps taken, final state committed
    kStopped,   // stopped on request, state committed
    kLeft,      // the job goes on without this worker, as was asked for
    // Of a program's session only, before one of these; no synchronizer has them.
    kSave,  // hand over the state that goes with the weights of version `step`
    kLoad,  // take over the state that goes with them
  };
  Kind kind = Kind::kTrain;
  std::int64_t step = 0;  // kLeft: the job's, which may be past what this worker has
  std::int64_t epoch = 0;
  int rank = 0;
  int ranks = 1;
  std::int64_t first_position = 0;
  int samples = 0;                // of this rank's batch
  std::int64_t step_samples = 0;  // of all ranks in the step
  // Where a step needs every rank's gradient (AllReduce): the version that the epoch began with. A
  // step before it that this worker had to give up under the former epoch was taken by others, with
  // its gradient. 0: not so.
  std::int64_t epoch_step = 0;
  // Of a turn that is over, where a step needs every rank's gradient: the steps that the job has
  // taken. One before it that this worker waited for under this epoch was taken with its gradient,
  // too. 0: not so.
  std::int64_t taken = 0;
};

// Nothing follows such a turn.
inline bool isOver(Turn::Kind kind) {
  return kind == Turn::Kind::kDone || kind == Turn::Kind::kStopped || kind == Turn::Kind::kLeft;
}

}  // namespace trainyard::runtime
