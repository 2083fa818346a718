// What changed between two statuses, for logs and for the traces of tests.
#pragma once

#include <string>
#include <vector>

#include "trainyard/v1/job.pb.h"

namespace trainyard::control {

// One line per field that differs, in the order of the message:
//   "state: Created -> Running"
//   "conditions.Running: False (TasksNotReady) -> True (AllTasksReady)"
//   "tasks.worker-1.created: - -> 2"            (- where a side does not have it)
// Times, messages of conditions and observed generations of conditions are left out.
std::vector<std::string> diffStatus(const v1::JobStatus& before, const v1::JobStatus& after);

}  // namespace trainyard::control
