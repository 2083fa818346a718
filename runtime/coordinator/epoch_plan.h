// What an epoch's announcement says of its steps.
#pragma once

#include "runtime/data/step_plan.h"
#include "trainyard/v1/coordinator.pb.h"

namespace trainyard::runtime {

inline StepPlan planOf(const v1::EpochInfo& epoch) {
  StepPlan plan;
  plan.first_step = epoch.first_step();
  plan.first_position = epoch.first_position();
  plan.step_samples = epoch.step_samples();
  plan.rank_samples = epoch.rank_samples();
  plan.first_samples = epoch.first_step_samples();
  plan.end_position = epoch.end_position();
  plan.steps = epoch.steps();
  plan.backup_workers = epoch.backup_workers();
  for (const v1::EpochMember& member : epoch.members())
    plan.ranks += member.id().role() == v1::ROLE_WORKER;
  return plan;
}

}  // namespace trainyard::runtime
