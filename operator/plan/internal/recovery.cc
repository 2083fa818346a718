// What became of the tasks, and what follows from it.
#include <optional>

#include "base/core/exit_code.h"
#include "base/core/exit_code_set.h"
#include "base/core/rfc3339.h"
#include "fmt/format.h"
#include "operator/plan/internal/planner_state.h"

namespace trainyard::control {

namespace {

const std::string& restartPolicyOf(const PlannerState& state, const TaskView& task) {
  return task.key.role == v1::ROLE_PS ? state.spec.ps().restart_policy()
                                      : state.spec.worker().restart_policy();
}

// A program's own model may end the job for what it likes; the message has its words.
std::string_view divergedReason(const PlannerState& state) {
  return state.spec.training().model().name() == "program" ? "ProgramFailed" : kDiverged;
}

// Ended in failure for good: why, as a condition's reason.
std::optional<std::string_view> permanentReason(const PlannerState& state, const TaskView& task) {
  const std::string& policy = restartPolicyOf(state, task);
  if (task.seen->disrupted) return std::nullopt;
  if (policy == "Never") return "TaskFailed";
  if (policy == "OnFailure" || !task.seen->exit || task.seen->exit->signal != 0)
    return std::nullopt;
  const int code = task.seen->exit->code;
  if (state.foreign()) {  // what the code means is known to its author
    return isPermanentForeignExit(code) ? std::optional<std::string_view>("TaskFailed")
                                        : std::nullopt;
  }
  if (!isPermanentExit(code)) return std::nullopt;
  if (code == kExitTableFull) return kTableFull;
  return code == kExitDiverged ? divergedReason(state) : "BadInput";
}

// What the job's own rules say of its end; nothing where it has not failed. Of a task that is being
// deleted the exit code says nothing: it was told to end.
std::optional<FailureVerdict> verdictOf(const PlannerState& state, const TaskView& task) {
  if (!task.current() || !state.spec.run_policy().has_pod_failure_policy()) return std::nullopt;
  const bool failed = task.seen->phase == TaskPhase::kFailed;
  if (!failed && !task.seen->terminating) return std::nullopt;
  Failure failure{.exit_code = 0, .conditions = task.seen->conditions};
  const auto& exit = task.seen->exit;
  if (exit && !task.seen->terminating) failure.exit_code = shellExitCode(exit->code, exit->signal);
  return judgeFailure(state.spec.run_policy(), failure);
}

// The same of the coordinator's word, whichever is heard first.
std::string_view failureReason(const PlannerState& state) {
  const std::string& reason = state.progress()->failure_reason();
  if (reason == kTableFull) return kTableFull;
  return reason == kDiverged ? divergedReason(state) : "RuntimeFailed";
}

std::string causeOf(const PlannerState& state, const TaskView& task) {
  if (task.seen == nullptr) return "is gone";
  if (state.outcome() == "stopped") return "stopped with the job";
  if (task.seen->terminating) return "was deleted";
  if (task.seen->phase == TaskPhase::kSucceeded) return "ended while a worker still needs it";
  return task.seen->exit && !task.seen->exit->cause.empty() ? task.seen->exit->cause : "failed";
}

// True when the job was restarted too often, which ends it.
bool exceedsLimit(PlannerState& state, const std::string& cause) {
  const v1::RunPolicy& policy = state.spec.run_policy();
  if (!policy.has_backoff_limit() || state.status.restarts() <= policy.backoff_limit())
    return false;
  setFailed(state, "BackoffLimitExceeded",
            fmt::format("{}; restart {} of at most {}", cause, state.status.restarts(),
                        policy.backoff_limit()));
  return true;
}

// Whether all programs of the job end and start again, or have just done so, because tasks came or
// went. They do not do so at one moment.
bool startAgain(const PlannerState& state) {
  const v1::WorkerSpec& worker = state.spec.worker();
  if (worker.has_on_membership_change() && worker.on_membership_change() != "Restart") return false;
  const v1::Condition* resizing = findCondition(state.status, kResizing);
  if (resizing == nullptr) return false;
  const UnixMillis since = parseRfc3339(resizing->last_transition_time());
  return resizing->status() == kTrue || state.input.unix_ms < since + toMillis(kPeerLoss);
}

// Whether another task was lost a moment ago, by a fault of its own or from outside, or has not
// come back since. A program of the user's own can do no more than end when it loses a peer. Losses
// that are excused thereby leave no time behind: programs that fail one after the other for ever
// are not excused by each other.
bool followsPeersLoss(const PlannerState& state, const TaskView& task) {
  if (!state.foreign()) return false;
  const bool gave_up = task.hasEnded(TaskPhase::kFailed) && task.seen->exit &&
                       task.seen->exit->signal == 0 &&
                       isPermanentForeignExit(task.seen->exit->code);
  if (gave_up && startAgain(state)) return true;
  return std::any_of(state.tasks.begin(), state.tasks.end(), [&](const TaskView& peer) {
    return peer.key != task.key && peer.desired && peer.history.create_ms != 0 &&
           (state.input.unix_ms < peer.history.create_ms + toMillis(kPeerLoss) || !peer.current());
  });
}

// Whether the loss of a peer may still turn up that explains an exit code which would end the job.
// An end whose time is not known, or by a clock that is far off, is judged at once; so is one of a
// job that is to end with its first failure.
bool isTooEarlyToJudge(PlannerState& state, const TaskView& task) {
  if (!state.foreign() || !task.hasEnded(TaskPhase::kFailed) || !task.seen->exit) return false;
  if (restartPolicyOf(state, task) == "Never" || !permanentReason(state, task)) return false;
  const bool has_peers =
      std::any_of(state.tasks.begin(), state.tasks.end(),
                  [&](const TaskView& peer) { return peer.desired && peer.key != task.key; });
  const UnixMillis at = task.seen->exit->at;
  const UnixMillis age = state.input.unix_ms - at;
  const UnixMillis grace = toMillis(kExitGrace);
  if (!has_peers || at == 0 || age >= grace || age < -grace) return false;
  state.wakeAt(at + grace);
  return true;
}

// What follows from another task's loss was counted with that one.
void excuseInPlace(PlannerState& state, const TaskView& task) {
  const std::string message =
      fmt::format("{} (created {}) ended after the loss of another task: start {}",
                  toString(task.key), task.history.created, task.seen->restarts + 1);
  state.condition(kRestarting, kTrue, "TaskDisrupted", message);
  state.event("Warning", "TaskDisrupted", message);
}

// Starts in place since the last look, which no longer count as new.
std::int32_t takeStarts(TaskView& task) {
  if (!task.current() || task.seen->restarts <= task.history.in_place) return 0;
  const auto more = static_cast<std::int32_t>(task.seen->restarts - task.history.in_place);
  task.history.in_place = task.seen->restarts;
  return more;
}

void addRestarts(PlannerState& state, TaskView& task, std::int32_t more) {
  task.history.restarts += more;
  state.status.set_restarts(state.status.restarts() + more);
}

// A task may start again and succeed between two looks at it.
void countBeforeSuccess(PlannerState& state, TaskView& task) {
  const std::int32_t more = takeStarts(task);
  if (more > 0 && !followsPeersLoss(state, task)) addRestarts(state, task, more);
}

void countInPlace(PlannerState& state, TaskView& task) {
  const std::int32_t more = takeStarts(task);
  if (more == 0) return;
  if (followsPeersLoss(state, task)) return excuseInPlace(state, task);
  if (state.foreign()) task.history.create_ms = state.input.unix_ms;
  addRestarts(state, task, more);
  const std::string message =
      fmt::format("{} (created {}) was restarted in place: start {}", toString(task.key),
                  task.history.created, task.seen->restarts + 1);
  if (exceedsLimit(state, message)) return;
  state.condition(kRestarting, kTrue, "TaskRestarted", message);
  state.event("Warning", "TaskRestarted", message);
}

// When the next life may begin. Grows with every life that was not a healthy one.
std::chrono::seconds backOff(TaskHistory& history, UnixMillis now) {
  const bool was_healthy =
      history.create_ms != 0 && now - history.create_ms >= toMillis(kHealthyLife);
  history.recent = was_healthy ? 1 : history.recent + 1;
  const int doublings = std::min(history.recent - 1, 16);
  const auto delay = std::min(kRestartBase * (std::int64_t{1} << doublings), kRestartMax);
  history.create_ms = now + toMillis(delay);
  return delay;
}

std::string ruleName(const FailureVerdict& verdict) {
  return fmt::format("runPolicy.podFailurePolicy.rules[{}]", verdict.rule);
}

// A life is over that should not be. The next one gets a new number and waits for its back-off.
void lose(PlannerState& state, TaskView& task, bool from_outside,
          const std::optional<FailureVerdict>& verdict = {}) {
  TaskHistory& history = task.history;
  const bool excused = !from_outside && !verdict && followsPeersLoss(state, task);
  const bool disrupted = from_outside || excused;
  std::string cause =
      fmt::format("{} (created {}): {}", toString(task.key), history.created, causeOf(state, task));
  if (verdict)
    cause +=
        fmt::format("; {} by {}", from_outside ? "not counted" : "counted", ruleName(*verdict));
  if (from_outside) {
    state.status.set_disruptions(state.status.disruptions() + 1);
  } else if (!excused) {
    history.restarts += 1;
    state.status.set_restarts(state.status.restarts() + 1);
    if (exceedsLimit(state, cause)) return;
  }
  // What follows from another's loss need not wait longer than that one.
  if (excused) history.create_ms = 0;
  const auto delay = excused ? std::chrono::seconds(0) : backOff(history, state.input.unix_ms);
  task.renumber();
  const std::string_view reason = disrupted ? "TaskDisrupted" : "TaskLost";
  const std::string message = fmt::format("{}; created again in {} s", cause, delay.count());
  state.condition(kRestarting, kTrue, reason, message);
  state.event("Warning", reason, message);
}

// What the task's end counts as; nothing while it is well, or waits to be created.
enum class Loss { kNone, kFault, kDisruption };
Loss lossOf(const TaskView& task, const std::optional<FailureVerdict>& verdict) {
  if (!task.numberIsUsed()) return Loss::kNone;
  if (verdict) return verdict->action == FailureAction::kCount ? Loss::kFault : Loss::kDisruption;
  if (!task.current()) return task.seen == nullptr ? Loss::kDisruption : Loss::kNone;
  if (task.seen->terminating) return Loss::kDisruption;
  if (task.seen->phase != TaskPhase::kFailed) return Loss::kNone;
  return task.seen->disrupted ? Loss::kDisruption : Loss::kFault;
}

// A ps ends when the job does; a worker that has to run again after that finds nobody to finish
// with.
void recallPs(PlannerState& state) {
  const bool worker_waits =
      std::any_of(state.tasks.begin(), state.tasks.end(), [](const TaskView& task) {
        return task.key.role == v1::ROLE_WORKER && task.desired && !task.spared && !task.finished &&
               !task.lives();
      });
  if (!worker_waits) return;
  for (TaskView& task : state.tasks) {
    if (task.key.role == v1::ROLE_PS && task.desired && task.hasEnded(TaskPhase::kSucceeded)) {
      lose(state, task, true);
    }
  }
}

// An index that nobody wants leaves the membership; should it ever come back, it is another life. A
// task that takes part is given time to go by itself: a worker ends its step, a parameter server
// hands over what it holds. The others need not miss it; nor one whose program never began, because
// the membership that it was in for a moment came and went too fast: it would wait for ever. But
// that it has begun is heard of a moment later.
void letGo(PlannerState& state, TaskView& task) {
  const bool is_member = state.spec.has_training() && task.lives() && task.member != nullptr &&
                         task.member->created() == task.seen->created;
  std::int64_t grace = is_member ? toMillis(kBeginGrace) : 0;
  if (is_member && (task.seen->began || task.seen->ready))
    grace = task.key.role == v1::ROLE_PS ? toMillis(kDrainGrace) : toMillis(kLeaveGrace);
  task.renumber();
  task.history.recent = 0;
  task.history.create_ms = is_member ? state.input.unix_ms + grace : 0;
}

// A former life that was let go and still has time.
bool isLeaving(PlannerState& state, const TaskView& task) {
  const TaskHistory& history = task.history;
  if (history.recent != 0 || history.create_ms <= state.input.unix_ms) return false;
  if (!isLive(*task.seen) || task.seen->created >= history.created) return false;
  state.wakeAt(history.create_ms);
  return true;
}

}  // namespace

void recordFinished(PlannerState& state) {
  // A job that stops ends with success too, without having finished.
  if (state.outcome() == "stopped") return;
  for (TaskView& task : state.tasks) {
    if (task.key.role == v1::ROLE_WORKER && task.desired && task.hasEnded(TaskPhase::kSucceeded)) {
      if (!task.finished) countBeforeSuccess(state, task);
      task.finished = true;
    }
  }
}

void findFailures(PlannerState& state) {
  for (const TaskView& task : state.tasks) {
    if (!task.desired || task.finished) continue;
    const auto verdict = verdictOf(state, task);
    if (verdict && verdict->action == FailureAction::kFailJob) {
      return setFailed(state, "PodFailurePolicy",
                       fmt::format("{}: {}; by {}", toString(task.key), causeOf(state, task),
                                   ruleName(*verdict)));
    }
    if (verdict || !task.hasEnded(TaskPhase::kFailed)) continue;
    if (followsPeersLoss(state, task) || isTooEarlyToJudge(state, task)) continue;
    if (const auto reason = permanentReason(state, task)) {
      return setFailed(state, *reason,
                       fmt::format("{}: {}", toString(task.key), causeOf(state, task)));
    }
  }
  if (state.outcome() == "failed") {
    const std::string& why = state.progress()->failure();
    return setFailed(state, failureReason(state),
                     why.empty() ? "the coordinator gave the job up" : why);
  }
  const v1::RunPolicy& policy = state.spec.run_policy();
  if (!policy.has_active_deadline_seconds() || !state.status.has_start_time()) return;
  const UnixMillis due =
      parseRfc3339(state.status.start_time()) + policy.active_deadline_seconds() * 1000;
  if (state.input.unix_ms >= due) {
    setFailed(state, "DeadlineExceeded",
              fmt::format("not finished {} s after its start", policy.active_deadline_seconds()));
  } else {
    state.wakeAt(due);
  }
}

void countLosses(PlannerState& state) {
  // Somebody stopped the job, but it is not to be suspended: it goes on as a whole, because each of
  // its tasks ends now.
  const bool stopped = state.outcome() == "stopped";
  for (TaskView& task : state.tasks) {
    if (!task.desired || task.finished) continue;
    countInPlace(state, task);
    if (state.isTerminal()) return;
    const auto verdict = stopped ? std::nullopt : verdictOf(state, task);
    if (!verdict && !followsPeersLoss(state, task) && isTooEarlyToJudge(state, task)) continue;
    const Loss loss = stopped ? Loss::kDisruption : lossOf(task, verdict);
    if (loss != Loss::kNone) lose(state, task, loss == Loss::kDisruption, verdict);
    if (state.isTerminal()) return;
  }
  recallPs(state);
}

void countLastRestarts(PlannerState& state) {
  if (state.foreign()) return;
  for (TaskView& task : state.tasks) addRestarts(state, task, takeStarts(task));
}

void createAndSweep(PlannerState& state) {
  const bool cleans_running = state.spec.run_policy().clean_pod_policy() == "Running";
  for (TaskView& task : state.tasks) {
    if (!task.desired && task.numberIsUsed()) letGo(state, task);
    TaskHistory& history = task.history;
    const bool wanted = task.desired && !task.finished;
    if (task.seen != nullptr) {
      const bool former = task.seen->created < history.created;
      if ((!task.desired || former) && !isLeaving(state, task)) {
        state.deleteTask(task, task.desired ? "Superseded" : "ScaledDown");
      } else if (task.finished && task.seen->lingers && cleans_running) {
        state.deleteTask(task, "TaskFinished");
      }
      continue;
    }
    if (history.recent == 0) history.create_ms = 0;  // who left is gone
    if (wanted && state.input.unix_ms >= history.create_ms) {
      state.plan.creates.push_back({task.key, history.created});
    } else if (wanted) {
      state.wakeAt(history.create_ms);
    }
  }
}

}  // namespace trainyard::control
