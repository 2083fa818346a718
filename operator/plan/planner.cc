#include "operator/plan/planner.h"

#include "fmt/format.h"
#include "google/protobuf/util/message_differencer.h"
#include "operator/plan/internal/membership.h"
#include "operator/plan/internal/planner_state.h"
#include "operator/plan/internal/status_report.h"
#include "operator/plan/internal/text.h"

namespace trainyard::control {

namespace {

constexpr std::string_view kManager = "trainyard.dev/operator";
constexpr int kNamesMax = 5;  // in a message

bool isManagedElsewhere(const v1::JobSpec& spec) {
  const std::string& manager = spec.run_policy().managed_by();
  return !manager.empty() && manager != kManager;
}

bool sameStatus(const v1::JobStatus& a, const v1::JobStatus& b) {
  return google::protobuf::util::MessageDifferencer::Equals(a, b);
}

void begin(PlannerState& state) {
  const v1::ObjectMeta& meta = state.input.observed.job.metadata();
  const v1::Images& images = state.input.observed.images;
  const bool known = images.has_agent() || images.has_runtime();
  if (known && !state.status.has_images()) *state.status.mutable_images() = images;
  if (meta.has_generation()) state.status.set_observed_generation(meta.generation());
  if (!state.status.has_restarts()) state.status.set_restarts(0);
  if (!state.status.has_disruptions()) state.status.set_disruptions(0);
  if (findCondition(state.status, kCreated) != nullptr) return;
  const std::string message = fmt::format("ps: {}, workers: {}", state.spec.ps().replicas(),
                                          state.spec.worker().replicas());
  state.condition(kCreated, kTrue, "JobCreated", message);
  state.event("Normal", "JobCreated", message);
}

void judgeReadiness(PlannerState& state) {
  int desired = 0, well = 0, named = 0;
  std::string missing;
  for (const TaskView& task : state.tasks) {
    if (!task.desired) continue;
    ++desired;
    if (task.isWell()) {
      ++well;
    } else if (++named <= kNamesMax) {
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", toString(task.key));
    }
  }
  const bool ran = state.is(kRunning, kTrue);
  if (well < desired) {
    const std::string message = fmt::format("{} of {} tasks are ready; waiting for {}{}", well,
                                            desired, missing, named > kNamesMax ? ", ..." : "");
    const TaskWait wait = whatIsWaitedFor(state);
    const std::string detail =
        wait.message.empty() ? message : fmt::format("{}; {}", message, wait.message);
    // A task that is not ready for a moment, or a new one, does not stop a job that runs.
    const bool runs = ran && !state.is(kRestarting, kTrue);
    judgeResizing(state, false, detail);
    state.condition(kRunning, runs ? kTrue : kFalse, "TasksNotReady", detail);
    state.condition(kReconciling, kTrue, wait.reason, detail);
    return;
  }
  const std::string message = fmt::format("{} of {} tasks are ready", desired, desired);
  judgeResizing(state, true, message);
  state.condition(kRunning, kTrue, "AllTasksReady", message);
  if (state.is(kRestarting, kTrue)) {
    state.condition(kRestarting, kFalse, "AllTasksReady", message);
  }
  state.condition(kReconciling, kFalse, "AllTasksReady", message);
  if (!ran) state.event("Normal", "JobRunning", message);
}

// One step of a job that has not ended. Order matters: success is looked for first, because a chief
// that succeeded outweighs a worker that then stumbled; what ends the job comes before what mends
// it.
void advance(PlannerState& state) {
  if (suspend(state)) return;
  if (meetsObstacle(state)) return;
  if (state.is(kSuspended, kTrue)) resume(state);
  if (!state.status.has_start_time()) {
    state.status.set_start_time(formatRfc3339(state.input.unix_ms));
  }
  recordFinished(state);
  findSuccess(state);
  if (!state.isTerminal()) findFailures(state);
  if (!state.isTerminal()) countLosses(state);
  if (state.isTerminal()) return;
  createAndSweep(state);
  state.plan.publish = nextMembership(state.input, state.tasks);
  judgeReadiness(state);
}

void reportMembership(PlannerState& state) {
  const auto& membership = state.input.observed.membership;
  if (!membership || membership->revision() == state.status.membership().revision()) return;
  state.status.mutable_membership()->set_revision(membership->revision());
  state.event(
      "Normal", "MembershipPublished",
      fmt::format("revision {}, tasks: {}", membership->revision(), membership->tasks_size()));
}

// The status that is about to be written does not list a task that is gone any more. Where the
// membership does not know its number either, the next number is recorded instead.
void rememberNumbers(PlannerState& state) {
  for (TaskView& task : state.tasks) {
    const bool gone = task.listed && !task.current() && !task.finished;
    if (gone && !task.memberKnows()) task.renumber();
  }
}

// The remains of tasks whose end the status holds, or that nobody asks about any more.
void release(PlannerState& state) {
  const bool over = state.isTerminal() || state.is(kSuspended, kTrue);
  for (const TaskView& task : state.tasks) {
    if (task.seen == nullptr || !task.seen->held || isLive(*task.seen)) continue;
    const bool recorded =
        over || task.finished || !task.desired || task.seen->created < task.history.created;
    const auto same = [&](const DeleteTask& other) { return other.key == task.key; };
    const bool deleted = std::any_of(state.plan.deletes.begin(), state.plan.deletes.end(), same);
    if (recorded && !deleted) state.plan.releases.push_back({task.key, task.seen->created});
  }
}

// Fills what only reports, and keeps the status when anything in it is new.
void finish(PlannerState& state) {
  reportMembership(state);
  if (!state.isTerminal()) rememberNumbers(state);
  reportRoles(state.input.observed.job, state.tasks, &state.status);
  recordHistories(state.tasks, &state.status);
  state.status.set_state(std::string(deriveState(state.status)));
  if (const v1::JobProgress* progress = state.progress()) {
    const bool state_changed = state.status.state() != state.recorded.state();
    const auto due = reportProgress(*progress, state.input.unix_ms, state_changed, &state.status);
    if (due) state.wakeAt(*due);
  }
  if (!sameStatus(state.status, state.recorded)) {
    state.plan.status = state.status;
  } else {
    state.plan.events.clear();
  }
}

}  // namespace

const v1::JobProgress* PlannerState::progress() const {
  if (!input.progress) return nullptr;
  const TaskKey coordinator = coordinatorOf(spec);
  for (const TaskView& task : tasks) {
    if (task.key == coordinator && task.history.created == input.progress_created) {
      return &*input.progress;
    }
  }
  return nullptr;
}

std::string_view PlannerState::outcome() const {
  const v1::JobProgress* word = progress();
  return word == nullptr ? std::string_view() : std::string_view(word->outcome());
}

void PlannerState::condition(std::string_view type, std::string_view value, std::string_view reason,
                             const std::string& message) {
  setCondition(&status, input.unix_ms, {type, value, reason, message});
}

void PlannerState::event(std::string_view type, std::string_view reason,
                         const std::string& message) {
  plan.events.push_back({std::string(type), std::string(reason), message});
}

void PlannerState::wakeAt(UnixMillis at) {
  const TimePoint when = input.now + std::chrono::milliseconds(at - input.unix_ms);
  if (!plan.wake_at || when < *plan.wake_at) plan.wake_at = when;
}

void PlannerState::deleteTask(const TaskView& task, std::string_view reason) {
  if (task.seen->terminating) return;
  plan.deletes.push_back({task.key, task.seen->created, std::string(reason)});
}

Plan planJob(const PlannerInput& input) {
  if (isManagedElsewhere(input.observed.job.spec())) return {};
  PlannerState state(input);
  if (input.observed.job.metadata().has_deletion_timestamp()) {
    for (const TaskView& task : state.tasks) {
      if (task.seen == nullptr) continue;
      state.deleteTask(task, "JobDeleted");
      if (task.seen->terminating && task.seen->held) {
        state.plan.releases.push_back({task.key, task.seen->created});
      }
    }
    return state.plan;
  }
  begin(state);
  if (!state.isTerminal()) advance(state);
  if (state.isTerminal()) cleanUp(state);
  release(state);
  finish(state);
  return state.plan;
}

bool isEmpty(const Plan& plan) {
  return !plan.status && plan.events.empty() && !plan.publish && plan.deletes.empty() &&
         plan.releases.empty() && plan.creates.empty() && !plan.delete_job;
}

}  // namespace trainyard::control
