// What is told of a job that runs while workers are added or taken away.
#include "fmt/format.h"
#include "operator/plan/internal/planner_state.h"

namespace trainyard::control {

namespace {

constexpr int kNamesMax = 5;  // in a message

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

// Told once, with the status that holds the new number.
void tellOfEdit(PlannerState& state) {
  const std::int32_t before = state.recorded.worker().desired();
  const std::int32_t now = state.spec.worker().replicas();
  if (before == 0 || before == now) return;
  state.event("Normal", now > before ? "ScalingUp" : "ScalingDown",
              fmt::format("workers: {} -> {}", before, now));
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
    if (task.key.role != v1::ROLE_WORKER) continue;
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
    state.event("Normal", "Resized", fmt::format("workers: {}", state.spec.worker().replicas()));
  }
}

}  // namespace trainyard::control
