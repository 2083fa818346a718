// Whether the agents of a job's tasks answer the operator: without them nobody can be told to stop,
// and nothing is heard of how the job gets on.
#include <algorithm>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "operator/plan/internal/planner_state.h"

namespace trainyard::control {

namespace {

// Of a job without any answer the agents are found out one after the other: each number of them
// would be a write of its status.
std::string countOf(std::size_t silent, int live) {
  const bool told = silent == 1 || silent == static_cast<std::size_t>(live);
  return told ? fmt::to_string(silent) : "some";
}

std::string messageOf(const std::string& count, int live, const TaskView& task) {
  return fmt::format("{} of {} agents do not answer; {}: {}", count, live, toString(task.key),
                     task.seen->unreachable->message);
}

void tellSilent(PlannerState& state, const std::vector<const TaskView*>& silent, int live) {
  const std::string count = countOf(silent.size(), live);
  const v1::Condition* told = findCondition(state.status, kAgentsReachable);
  const bool known = told != nullptr && told->status() == kFalse;
  // What was told of one is left as long as it is true, whoever else is silent now; all are some.
  const auto stays = [&](const TaskView* task) {
    return told->reason() == task->seen->unreachable->reason &&
           (told->message() == messageOf(count, live, *task) ||
            (silent.size() > 1 && told->message() == messageOf("some", live, *task)));
  };
  if (known && std::ranges::any_of(silent, stays)) return;
  const std::string message = messageOf(count, live, *silent.front());
  const std::string& reason = silent.front()->seen->unreachable->reason;
  if (!known) state.event("Warning", "AgentsUnreachable", fmt::format("{}: {}", reason, message));
  state.condition(kAgentsReachable, kFalse, reason, message);
}

}  // namespace

void judgeReach(PlannerState& state) {
  int live = 0;
  std::vector<const TaskView*> silent;
  for (const TaskView& task : state.tasks) {
    if (task.seen == nullptr || !isLive(*task.seen)) continue;
    ++live;
    if (task.seen->unreachable) silent.push_back(&task);
  }
  if (!silent.empty()) return tellSilent(state, silent, live);
  const v1::Condition* told = findCondition(state.status, kAgentsReachable);
  if (told == nullptr || (told->status() == kUnknown && live == 0)) return;
  if (live > 0 && told->status() != kTrue) {
    state.condition(kAgentsReachable, kTrue, "AgentsAnswer", "the agents answer again");
  } else if (live == 0 && told->status() == kFalse) {
    state.condition(kAgentsReachable, kUnknown, "NoTasks", "no task runs");
  }
}

bool wasUnreachable(const PlannerState& state, UnixMillis since) {
  return state.is(kAgentsReachable, kFalse) ||
         (state.is(kAgentsReachable, kTrue) &&
          transitionTime(state.status, kAgentsReachable) >= since);
}

}  // namespace trainyard::control
