// Whether the agents of a job's tasks answer the operator: without them nobody can be told to stop,
// and nothing is heard of how the job gets on.
#include "fmt/format.h"
#include "operator/plan/internal/planner_state.h"

namespace trainyard::control {

void judgeReach(PlannerState& state) {
  const TaskView* first = nullptr;
  int live = 0, silent = 0;
  for (const TaskView& task : state.tasks) {
    if (task.seen == nullptr || !isLive(*task.seen)) continue;
    ++live;
    if (!task.seen->unreachable) continue;
    ++silent;
    if (first == nullptr) first = &task;
  }
  if (first != nullptr) {
    const TaskWait& why = *first->seen->unreachable;
    const std::string message = fmt::format("{} of {} agents do not answer; {}: {}", silent, live,
                                            toString(first->key), why.message);
    if (!state.is(kAgentsReachable, kFalse)) {
      state.event("Warning", "AgentsUnreachable", fmt::format("{}: {}", why.reason, message));
    }
    return state.condition(kAgentsReachable, kFalse, why.reason, message);
  }
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
