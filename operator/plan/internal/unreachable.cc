// Tasks that are to end on a node that nobody hears of (runPolicy.podReplacement).
#include "fmt/format.h"
#include "operator/plan/internal/planner_state.h"

namespace trainyard::control {

namespace {

void forget(PlannerState& state, const TaskView& task) {
  state.plan.forgets.push_back({task.key, task.seen->created});
  if (state.isTerminal() || !task.desired || state.spec.run_policy().suspend()) return;
  const std::string where = task.seen->waiting ? task.seen->waiting->message : "";
  const std::string message =
      fmt::format("{} (created {}){}{}: its end was due {} s ago and nobody tells of it",
                  toString(task.key), task.seen->created, where.empty() ? "" : " ", where,
                  (state.input.unix_ms - task.seen->end_due) / 1000);
  state.event("Warning", "TaskForgotten", message);
  state.condition(kRestarting, kTrue, "TaskForgotten", message);
}

}  // namespace

void forgetUnreachable(PlannerState& state) {
  if (state.spec.run_policy().pod_replacement() != "WhenUnreachable") return;
  for (const TaskView& task : state.tasks) {
    if (task.seen == nullptr || !task.seen->terminating || task.seen->end_due == 0) continue;
    const UnixMillis at = task.seen->end_due + toMillis(kEndUntold);
    if (state.input.unix_ms >= at) {
      forget(state, task);
    } else {
      state.wakeAt(at);
    }
  }
}

}  // namespace trainyard::control
