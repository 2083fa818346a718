// A TrainingJob of a cluster, with its pods and events, as the verbs show it. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/core/status.h"
#include "cli/jobs/job_view.h"
#include "nlohmann/json.hpp"

namespace trainyard::cli {

// The state as JobView has it. A job without any is Pending: no operator has taken it up.
std::string clusterState(const v1::TrainingJob& job);

// `object`: a TrainingJob as the apiserver gives it. INVALID_ARGUMENT names the JSON path.
StatusOr<JobView> clusterView(nlohmann::json object);

// The tasks that the job is to have, and whoever else is there of it. `pods`: as the apiserver
// gives them; those that are not the job's are passed over.
std::vector<TaskView> podTasks(const JobView& job, const std::vector<nlohmann::json>& pods);

// `events`: objects of kind Event, in any order; the result is in the order of time. An event that
// happened often says so: "(x12) ...".
std::vector<EventRecord> clusterEvents(const std::vector<nlohmann::json>& events);

}  // namespace trainyard::cli
