// Jobs as text and JSON, in the manner of kubectl. Pure: time by argument.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/core/clock.h"
#include "cli/jobs/job_view.h"
#include "nlohmann/json.hpp"

namespace trainyard::cli {

// "45s", "5m30s", "42m", "3h12m", "2d4h": as kubectl writes ages; "-" for times to come and none.
std::string formatAge(UnixMillis then, UnixMillis now);

// One line for each job below a line of titles; all of them local, or all of one cluster. `wide`:
// also restarts, checkpoint, where it is (the launcher's process and the directory, or the
// strategy), and why a job failed. `namespaces`: also those.
std::string jobsTable(const std::vector<JobView>& jobs, bool wide, UnixMillis now,
                      bool namespaces = false);

// A local job: the TrainingJob as recorded, with the state and the progress that the table shows,
// and below "run" the directory and the launcher's process. A cluster's: the object as it is there,
// without managedFields.
nlohmann::ordered_json jobJson(const JobView& job);

// `facts`: name and value of what the job is (reportFacts() of cli/run). At most the last
// `max_events` events are shown.
std::string describeText(const JobDetails& details,
                         const std::vector<std::pair<std::string, std::string>>& facts,
                         UnixMillis now, std::size_t max_events);

}  // namespace trainyard::cli
