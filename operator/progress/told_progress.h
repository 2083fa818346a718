// How a job of programs of the user's own gets on, which has no coordinator that could say so.
#pragma once

#include <optional>
#include <vector>

#include "trainyard/v1/agent.pb.h"

namespace trainyard::control {

// What the agent of a task has said last.
struct ToldBy {
  const v1::TaskState* state = nullptr;
  bool ended = false;  // the task has: it does nothing any more, whatever it said last
};

// From the tasks of the job as they are now, in the order of their numbers. Of its workers the step
// is the newest that one of them tells, as dashboards have it, examples per second add up, and the
// rest is what the first says that tells it. Nothing where no worker tells anything. Pure.
std::optional<v1::JobProgress> toldProgress(const std::vector<ToldBy>& tasks);

}  // namespace trainyard::control
