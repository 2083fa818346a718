// Why nothing goes on: what the cluster says of tasks that do not start.
#include <iterator>

#include "fmt/format.h"
#include "operator/plan/internal/planner_state.h"

namespace trainyard::control {

namespace {

constexpr std::size_t kMessageMax = 300;

// What becomes a condition's reason; anything else is told in the message alone.
constexpr std::string_view kReasons[] = {
    "Unschedulable",     "SchedulingGated",     "ImagePullBackOff", "CreateContainerConfigError",
    "InvalidImageName",  "QuotaExceeded",       "NameConflict",     "TemplateInvalid",
    "CreationForbidden", "GangSchedulerMissing"};

// Those of them that say that the apiserver does not let us do it.
constexpr std::string_view kRefusals[] = {"QuotaExceeded", "NameConflict", "TemplateInvalid",
                                          "CreationForbidden", "GangSchedulerMissing"};

std::string firstLine(std::string text) {
  text = text.substr(0, text.find('\n'));
  if (text.size() > kMessageMax) text = text.substr(0, kMessageMax) + "...";
  return text;
}

std::string describe(const std::string& who, const TaskWait& wait) {
  const std::string message = firstLine(wait.message);
  return message.empty() ? fmt::format("{}: {}", who, wait.reason)
                         : fmt::format("{}: {}: {}", who, wait.reason, message);
}

TaskWait told(const std::string& who, const TaskWait& wait) {
  const bool known =
      std::find(std::begin(kReasons), std::end(kReasons), wait.reason) != std::end(kReasons);
  return {known ? wait.reason : "TasksNotReady", describe(who, wait)};
}

// Every worker has come, and one of the parameter servers that they need has not.
bool workersWaitForPs(const PlannerState& state) {
  bool ps_missing = false;
  for (const TaskView& task : state.tasks) {
    if (!task.desired || task.isWell()) continue;
    if (task.key.role == v1::ROLE_PS) {
      ps_missing = true;
    } else if (!task.lives() || task.seen->phase != TaskPhase::kRunning) {
      return false;
    }
  }
  return ps_missing;
}

}  // namespace

bool meetsObstacle(PlannerState& state) {
  const auto& obstacle = state.input.observed.obstacle;
  const bool anything = std::any_of(state.tasks.begin(), state.tasks.end(),
                                    [](const TaskView& task) { return task.seen != nullptr; });
  if (obstacle && !anything) {
    const std::string message = firstLine(obstacle->message);
    if (!state.is(kStalled, kTrue)) state.event("Warning", obstacle->reason, message);
    state.condition(kStalled, kTrue, obstacle->reason, message);
    state.condition(kReconciling, kFalse, obstacle->reason, message);
    return true;
  }
  if (obstacle) forgetObstacle(state);  // it does not concern those that are there
  return false;
}

void forgetObstacle(PlannerState& state) {
  if (state.is(kStalled, kTrue))
    state.condition(kStalled, kFalse, "ObstacleGone", "its tasks can be created");
}

void tellOfRefusal(PlannerState& state, const TaskWait& wait) {
  const bool refused =
      std::find(std::begin(kRefusals), std::end(kRefusals), wait.reason) != std::end(kRefusals);
  const v1::Condition* recorded = findCondition(state.status, kReconciling);
  const bool told = recorded != nullptr && recorded->reason() == wait.reason;
  if (refused && !told) state.event("Warning", wait.reason, wait.message);
}

TaskWait whatIsWaitedFor(const PlannerState& state) {
  for (const TaskView& task : state.tasks) {
    if (!task.desired || task.isWell() || !task.lives() || !task.seen->waiting) continue;
    return told(toString(task.key), *task.seen->waiting);
  }
  // Former lives that are still on their way out.
  for (const TaskView& task : state.tasks) {
    if (!task.desired || task.isWell() || task.seen == nullptr) continue;
    if (task.seen->terminating && task.seen->waiting) {
      return told(fmt::format("{} (created {})", toString(task.key), task.seen->created),
                  *task.seen->waiting);
    }
  }
  for (const TaskView& task : state.tasks) {
    if (!task.desired || task.isWell() || task.seen != nullptr) continue;
    if (state.input.observed.refusal)
      return told(toString(task.key), *state.input.observed.refusal);
  }
  if (workersWaitForPs(state)) return {"WaitingForPs", ""};
  return {"TasksNotReady", ""};
}

}  // namespace trainyard::control
