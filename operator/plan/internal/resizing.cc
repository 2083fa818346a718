// What is told of a job that runs while tasks are added or taken away.
#include <string_view>
#include <vector>

#include "fmt/format.h"
#include "operator/plan/internal/planner_state.h"

namespace trainyard::control {

namespace {

// Names of tasks, the first few of them.
class Names {
 public:
  void add(const TaskKey& key) {
    if (++count_ > kNamesMax) return;
    text_ += fmt::format("{}{}", text_.empty() ? "" : ", ", toString(key));
  }
  bool empty() const { return count_ == 0; }
  std::string text() const { return count_ > kNamesMax ? text_ + ", ..." : text_; }

 private:
  int count_ = 0;
  std::string text_;
};

// Of one role: how many there were when the status was written, and how many are wanted.
struct Number {
  std::string_view name;
  std::int32_t before = 0, now = 0;
};

std::vector<Number> numbersOf(const PlannerState& state) {
  std::vector<Number> numbers;
  if (state.spec.has_ps())
    numbers.push_back({"ps", state.recorded.ps().desired(), state.spec.ps().replicas()});
  numbers.push_back({"workers", state.recorded.worker().desired(), state.spec.worker().replicas()});
  return numbers;
}

// "ps: 2, workers: 3"
std::string numbersText(const PlannerState& state) {
  std::string text;
  for (const Number& number : numbersOf(state))
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", number.name, number.now);
  return text;
}

// Told once, with the status that holds the new numbers.
void tellOfEdit(PlannerState& state) {
  for (const Number& number : numbersOf(state)) {
    if (number.before == 0 || number.before == number.now) continue;
    state.event("Normal", number.now > number.before ? "ScalingUp" : "ScalingDown",
                fmt::format("{}: {} -> {}", number.name, number.before, number.now));
  }
}

}  // namespace

void judgeResizing(PlannerState& state, bool well, const std::string& message) {
  const bool resizes = state.is(kResizing, kTrue);
  const bool runs = state.is(kRunning, kTrue) || state.is(kRestarting, kTrue);
  if (!state.input.observed.membership || (!runs && !resizes)) return;
  tellOfEdit(state);
  const v1::Condition* recorded = findCondition(state.status, kResizing);
  const bool grows = resizes && recorded->reason() == "ScalingUp";
  Names coming, leaving;
  for (const TaskView& task : state.tasks) {
    const bool there = task.member != nullptr || task.seen != nullptr;
    if (!task.desired && there) leaving.add(task.key);
    const bool joins = task.member == nullptr || (grows && !task.isReady());
    if (task.desired && !task.finished && joins) coming.add(task.key);
  }
  if (!coming.empty()) {
    state.condition(kResizing, kTrue, "ScalingUp", coming.text() + " to join");
  } else if (!leaving.empty()) {
    state.condition(kResizing, kTrue, "ScalingDown", leaving.text() + " to leave");
  } else if (resizes && well) {
    state.condition(kResizing, kFalse, "AllTasksReady", message);
    state.event("Normal", "Resized", numbersText(state));
  }
}

}  // namespace trainyard::control
