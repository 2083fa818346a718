// Who reads what in the steps of one epoch. A function of few numbers, which the coordinator
// announces with the epoch: coordinator, servers and workers each compute it and agree.
#pragma once

#include <cstdint>

namespace trainyard::runtime {

// Step s reads the stream's positions [positionOf(s), positionOf(s + 1)): step_samples of them,
// fewer at the end of the stream. Its ranks take one piece each, in the order of ranks. With a
// batch of each rank (rank_samples) the first ranks take whole batches, the next what is left;
// without, sizes differ by at most one, and the first (samples mod ranks) pieces are the larger
// ones. Ranks for which nothing is left have no part in the step.
//
// The first step is special where an epoch of other ranks was interrupted in it: what some servers
// have taken of it came from so many samples, and the others must take the same. Where these are
// more than the ranks' batches, they are dealt out evenly.
struct StepPlan {
  std::int64_t first_step = 0;      // of the epoch
  std::int64_t first_position = 0;  // of the sample stream, where first_step reads
  std::int64_t step_samples = 0;    // of all ranks in a full step
  std::int64_t rank_samples = 0;    // of each rank in a full step; 0: step_samples dealt out evenly
  std::int64_t first_samples = 0;   // of first_step, where it differs; 0: it does not
  std::int64_t end_position = 0;    // nothing at or behind it is read; 0: the stream has no end
  std::int64_t steps = 0;           // of the job: no step is taken from this one on
  int ranks = 0;
  int backup_workers = 0;  // a step is complete without the gradients of so many ranks

  struct Share {
    std::int64_t first = 0;  // position of the sample stream
    int count = 0;           // 0: no part in the step
    bool operator==(const Share&) const = default;
  };

  // Where `step` >= first_step begins: all before it is consumed when version `step` is reached.
  std::int64_t positionOf(std::int64_t step) const;
  // Samples of all ranks; 0 for steps that are not taken in this epoch.
  std::int64_t samplesOf(std::int64_t step) const;
  // Ranks [0, takers) have samples in `step`.
  int takers(std::int64_t step) const;
  // So many gradients make `step`.
  int quorum(std::int64_t step) const;
  Share shareOf(std::int64_t step, int rank) const;
  // Of a step of so many samples ranks take whole batches.
  bool inBatches(std::int64_t samples) const {
    return rank_samples > 0 && samples <= rank_samples * ranks;
  }
};

// The version at which all of the stream's first `end_position` samples are consumed, when step
// `first_step` begins at `first_position` and steps take `step_samples` >= 1; the last may be
// short.
std::int64_t stepsToReach(std::int64_t end_position, std::int64_t first_step,
                          std::int64_t first_position, std::int64_t step_samples);

}  // namespace trainyard::runtime
