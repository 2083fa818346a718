// What an agent starts as its task's runtime, by the job: which program, and with how many threads.
#pragma once

#include <string>

#include "agent/membership/identity.h"
#include "agent/supervisor/compute_threads.h"
#include "base/core/status.h"

namespace trainyard::agent {

struct RuntimeChoice {
  std::string program;
  ComputeThreads threads;
};

// From the job's file, which is read. `runtime` is trainyard-runtime; `workers_here` of the job
// compute on the cores that this process sees, this one included; `visible` is
// CUDA_VISIBLE_DEVICES, null where it is not set. With a job that cannot be read it is `runtime`,
// which says itself what is wrong. Errors as of runtimeProgram() and computeThreads().
StatusOr<RuntimeChoice> chooseRuntime(const std::string& job_file, const std::string& runtime,
                                      const TaskIdentity& self, int workers_here,
                                      const char* visible);

}  // namespace trainyard::agent
