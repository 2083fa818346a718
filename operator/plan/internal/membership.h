// Who belongs to the job, as the observation shows it.
#pragma once

#include <optional>
#include <vector>

#include "operator/plan/internal/job_view.h"
#include "trainyard/v1/membership.pb.h"

namespace trainyard::control {

// The membership to publish: revision + 1, when every desired task has an address (a task that
// ended with success keeps its entry) and who, which life or where differs from the recorded one.
// Nothing otherwise: a job waits for all of its tasks, also one that begins again with more or
// fewer than the record names. Two do not wait: those that compute already for tasks that are to
// join them, who come in together later; and those that are to leave for a lost one, whose entry
// stays until it is back. Beside them stands how far the job has come, as far as that is known.
std::optional<v1::Membership> nextMembership(const PlannerInput& input,
                                             const std::vector<TaskView>& tasks);

}  // namespace trainyard::control
