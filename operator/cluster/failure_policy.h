// runPolicy.podFailurePolicy: what a job's author says of tasks that fail. Names and meaning are
// those of Kubernetes' Job (batch/v1), where a task is a pod.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/core/exit_code_set.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::control {

enum class FailureAction {
  kFailJob,
  kIgnore,  // created again, without counting
  kCount,   // created again, and counted against backoffLimit
};

struct PodCondition {
  std::string type;
  std::string status;  // True, False, Unknown
  bool operator==(const PodCondition&) const = default;
};

struct Failure {
  // As a shell tells it; 0: not known. kExitAgentFailure is not the program's, and fits no rule.
  int exit_code = 0;
  std::vector<PodCondition> conditions;
};

struct FailureVerdict {
  FailureAction action = FailureAction::kCount;
  std::size_t rule = 0;  // from 0
};

// The first rule that fits; nothing where none does, or the job has no rules. Of a valid job.
std::optional<FailureVerdict> judgeFailure(const v1::RunPolicy& policy, const Failure& failure);

// Exit codes after which an agent must not start its program again by itself, because a rule fails
// the job or does not count the failure.
ExitCodeSet codesOfTheJob(const v1::RunPolicy& policy);

}  // namespace trainyard::control
