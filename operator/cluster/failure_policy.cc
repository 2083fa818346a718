#include "operator/cluster/failure_policy.h"

#include <algorithm>

#include "base/core/exit_code.h"

namespace trainyard::control {
namespace {

bool fitsCode(const v1::OnExitCodes& codes, int code) {
  const bool among =
      std::find(codes.values().begin(), codes.values().end(), code) != codes.values().end();
  return among == (codes.operator_() == "In");
}

bool fitsCondition(const v1::OnPodCondition& wanted, const std::vector<PodCondition>& conditions) {
  return std::any_of(conditions.begin(), conditions.end(), [&](const PodCondition& one) {
    return one.type == wanted.type() && one.status == wanted.status();
  });
}

bool fits(const v1::PodFailureRule& rule, const Failure& failure) {
  if (rule.has_on_exit_codes()) {
    const bool of_program = failure.exit_code != 0 && failure.exit_code != kExitAgentFailure;
    return of_program && fitsCode(rule.on_exit_codes(), failure.exit_code);
  }
  const auto& wanted = rule.on_pod_conditions();
  return std::any_of(wanted.begin(), wanted.end(), [&](const v1::OnPodCondition& one) {
    return fitsCondition(one, failure.conditions);
  });
}

FailureAction actionOf(const v1::PodFailureRule& rule) {
  if (rule.action() == "FailJob") return FailureAction::kFailJob;
  return rule.action() == "Ignore" ? FailureAction::kIgnore : FailureAction::kCount;
}

}  // namespace

std::optional<FailureVerdict> judgeFailure(const v1::RunPolicy& policy, const Failure& failure) {
  const auto& rules = policy.pod_failure_policy().rules();
  const auto rule =
      std::find_if(rules.begin(), rules.end(), [&](const auto& one) { return fits(one, failure); });
  if (rule == rules.end()) return std::nullopt;
  return FailureVerdict{actionOf(*rule), static_cast<std::size_t>(rule - rules.begin())};
}

ExitCodeSet codesOfTheJob(const v1::RunPolicy& policy) {
  ExitCodeSet codes;
  for (int code = 1; code <= kLastExitCode; ++code) {
    const auto verdict = judgeFailure(policy, {.exit_code = code, .conditions = {}});
    if (verdict && verdict->action != FailureAction::kCount) codes.add(code);
  }
  return codes;
}

}  // namespace trainyard::control
