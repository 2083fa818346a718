#include "operator/plan/internal/conditions.h"

#include <string>

#include "base/core/rfc3339.h"

namespace trainyard::control {

const v1::Condition* findCondition(const v1::JobStatus& status, std::string_view type) {
  for (const v1::Condition& condition : status.conditions()) {
    if (condition.type() == type) return &condition;
  }
  return nullptr;
}

bool hasStatus(const v1::JobStatus& status, std::string_view type, std::string_view value) {
  const v1::Condition* condition = findCondition(status, type);
  return condition != nullptr && condition->status() == value;
}

UnixMillis transitionTime(const v1::JobStatus& status, std::string_view type) {
  const v1::Condition* condition = findCondition(status, type);
  return condition == nullptr ? 0 : parseRfc3339(condition->last_transition_time());
}

bool setCondition(v1::JobStatus* status, UnixMillis now, const ConditionChange& change) {
  v1::Condition* condition = nullptr;
  for (v1::Condition& candidate : *status->mutable_conditions()) {
    if (candidate.type() == change.type) condition = &candidate;
  }
  const bool changed = condition == nullptr || condition->status() != change.status;
  if (condition == nullptr) {
    condition = status->add_conditions();
    condition->set_type(std::string(change.type));
  }
  condition->set_status(std::string(change.status));
  condition->set_reason(std::string(change.reason));
  condition->set_message(std::string(change.message));
  if (status->has_observed_generation()) {
    condition->set_observed_generation(status->observed_generation());
  }
  if (changed) condition->set_last_transition_time(formatRfc3339(now));
  return changed;
}

std::string_view deriveState(const v1::JobStatus& status) {
  for (const std::string_view type : {kFailed, kSucceeded, kSuspended, kRestarting, kRunning}) {
    if (hasStatus(status, type, kTrue)) return type;
  }
  return kCreated;
}

}  // namespace trainyard::control
