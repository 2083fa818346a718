// With how many threads each process of a worker computes (training.threads).
#pragma once

#include <string>

#include "base/core/status.h"
#include "base/process/cpus.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::agent {

struct ComputeThreads {
  int number = 1;
  std::string reason;  // for the program's log
};

// The number that the job gives. With Auto the whole cores for each of the `processes` (1 or more)
// that compute on them, at least 1; in a deterministic job 1, because sums are cut by the number of
// threads, and workers on other machines, or the same later, may have other cores. Pure.
// INVALID_ARGUMENT names the field.
StatusOr<ComputeThreads> computeThreads(const v1::Training& training, const AvailableCpus& cpus,
                                        int processes);

}  // namespace trainyard::agent
