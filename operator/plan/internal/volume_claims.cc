// PersistentVolumeClaims of tasks that a scale-down has taken away.
#include "operator/cluster/volume_claims.h"

#include <algorithm>

#include "operator/plan/internal/planner_state.h"

namespace trainyard::control {

namespace {

// By its user, who may not wish the same of what a queue grants for a while.
bool isSmallerByQuota(const PlannerState& state, v1::Role role) {
  return role == v1::ROLE_PS ? state.spec.ps().replicas() < state.wanted.ps().replicas()
                             : state.spec.worker().replicas() < state.wanted.worker().replicas();
}

}  // namespace

// Only of tasks that this job once had: what an earlier job of its name has left is not its to
// delete. While it is suspended it is not decided yet with which indices it goes on.
void dropVolumeClaims(PlannerState& state) {
  if (state.is(kSuspended, kTrue) || state.is(kSuspended, kUnknown)) return;
  for (const TaskKey& key : state.input.observed.volume_claims) {
    if (!claimsGoWithTheTask(state.spec, key.role) || isSmallerByQuota(state, key.role)) continue;
    const auto task = std::find_if(state.tasks.begin(), state.tasks.end(),
                                   [&](const TaskView& each) { return each.key == key; });
    if (task == state.tasks.end() || task->desired || task->seen != nullptr) continue;
    state.plan.claim_drops.push_back(key);
  }
}

}  // namespace trainyard::control
