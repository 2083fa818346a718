// Workers that a job goes on without, because the cluster has no room for them
// (worker.minReplicas).
#include <algorithm>
#include <vector>

#include "base/core/rfc3339.h"
#include "operator/plan/internal/planner_state.h"

namespace trainyard::control {

namespace {

// Since when it could have come; a start or a resize that is under way counts anew. 0: the others
// go on without it already.
UnixMillis missingSince(const PlannerState& state, const TaskView& task) {
  const v1::Condition* running = findCondition(state.status, kRunning);
  const bool without_some = running != nullptr && running->reason() == "WorkersMissing";
  if (without_some && task.member == nullptr && state.input.observed.membership) return 0;
  if (task.history.create_ms != 0) return task.history.create_ms;
  const v1::Condition* resizing = findCondition(state.status, kResizing);
  const bool resizes = resizing != nullptr && resizing->status() == kTrue;
  return parseRfc3339(resizes ? resizing->last_transition_time() : state.status.start_time());
}

}  // namespace

void spareWorkers(PlannerState& state) {
  const v1::WorkerSpec& worker = state.spec.worker();
  if (state.foreign() || !worker.has_min_replicas()) return;
  int there = 0;
  std::vector<TaskView*> missing;
  for (TaskView& task : state.tasks) {
    if (task.key.role != v1::ROLE_WORKER || !task.desired) continue;
    const bool here = task.finished || task.hasAddress();
    there += here ? 1 : 0;
    if (here || task.key.index == 0) continue;
    const UnixMillis due = missingSince(state, task) + toMillis(kSpareAfter);
    if (state.input.unix_ms >= due) {
      missing.push_back(&task);
    } else {
      state.wakeAt(due);
    }
  }
  if (there < std::max(1, worker.min_replicas())) return;
  for (TaskView* task : missing) task->spared = true;
}

}  // namespace trainyard::control
