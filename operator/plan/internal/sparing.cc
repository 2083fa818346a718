// Tasks that a job goes on without, because the cluster has no room for them (ps.minReplicas,
// worker.minReplicas).
#include <algorithm>
#include <vector>

#include "base/core/rfc3339.h"
#include "operator/plan/internal/planner_state.h"

namespace trainyard::control {

namespace {

bool goesWithoutSome(const PlannerState& state) {
  const v1::Condition* running = findCondition(state.status, kRunning);
  return running != nullptr &&
         (running->reason() == kWorkersMissing || running->reason() == kServersMissing);
}

// Since when it could have come; a start or a resize that is under way counts anew. 0: the others
// go on without it already.
UnixMillis missingSince(const PlannerState& state, const TaskView& task) {
  const bool told = state.input.observed.membership.has_value();
  if (goesWithoutSome(state) && task.member == nullptr && told) return 0;
  // It was there until now: its loss is yet to be counted.
  if (task.numberIsUsed() && !task.lives()) return state.input.unix_ms;
  if (task.history.create_ms != 0) return task.history.create_ms;
  const v1::Condition* resizing = findCondition(state.status, kResizing);
  const bool resizes = resizing != nullptr && resizing->status() == kTrue;
  return parseRfc3339(resizes ? resizing->last_transition_time() : state.status.start_time());
}

// A parameter server that has ended with success is not missed: the workers are about to.
bool isHere(const TaskView& task) {
  return task.finished || task.hasAddress() ||
         (task.key.role == v1::ROLE_PS && task.hasEnded(TaskPhase::kSucceeded));
}

// Never the first of a role: ps-0 has the coordinator, worker-0 is the chief.
void spareOf(PlannerState& state, v1::Role role, int least) {
  int there = 0;
  std::vector<TaskView*> missing;
  for (TaskView& task : state.tasks) {
    if (task.key.role != role || !task.desired) continue;
    const bool here = isHere(task);
    there += here ? 1 : 0;
    if (here || task.key.index == 0) continue;
    const UnixMillis due = missingSince(state, task) + toMillis(kSpareAfter);
    if (state.input.unix_ms >= due) {
      missing.push_back(&task);
    } else {
      state.wakeAt(due);
    }
  }
  if (there < std::max(1, least)) return;
  for (TaskView* task : missing) task->spared = true;
}

}  // namespace

void spareTasks(PlannerState& state) {
  const v1::JobSpec& spec = state.spec;
  if (state.foreign()) return;
  if (spec.ps().has_min_replicas()) spareOf(state, v1::ROLE_PS, spec.ps().min_replicas());
  if (spec.worker().has_min_replicas())
    spareOf(state, v1::ROLE_WORKER, spec.worker().min_replicas());
}

}  // namespace trainyard::control
