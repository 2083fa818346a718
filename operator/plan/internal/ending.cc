// How a job ends or rests: Succeeded, Failed, Suspended.
#include "base/core/annotations.h"
#include "base/core/rfc3339.h"
#include "fmt/format.h"
#include "operator/cluster/stop_seconds.h"
#include "operator/cluster/task_keys.h"
#include "operator/plan/internal/planner_state.h"

namespace trainyard::control {

namespace {

// What every ended or suspended job has in common: nothing runs or comes back.
void settle(PlannerState& state, std::string_view reason, const std::string& message) {
  if (findCondition(state.status, kRunning) != nullptr) {
    state.condition(kRunning, kFalse, reason, message);
  }
  if (state.is(kRestarting, kTrue)) state.condition(kRestarting, kFalse, reason, message);
  if (state.is(kResizing, kTrue)) state.condition(kResizing, kFalse, reason, message);
  if (state.is(kSuspended, kUnknown)) state.condition(kSuspended, kFalse, reason, message);
  state.condition(kReconciling, kFalse, reason, message);
}

void deleteAll(PlannerState& state, std::string_view reason) {
  for (const TaskView& task : state.tasks) {
    if (task.seen != nullptr) state.deleteTask(task, reason);
  }
}

// Someone is there who can be asked to checkpoint and stop.
bool computes(const PlannerState& state) {
  return !state.foreign() && state.input.observed.membership.has_value() &&
         std::any_of(state.tasks.begin(), state.tasks.end(),
                     [](const TaskView& task) { return task.lives(); });
}

bool aWorkerLives(const PlannerState& state) {
  return std::any_of(state.tasks.begin(), state.tasks.end(), [](const TaskView& task) {
    return task.key.role == v1::ROLE_WORKER && task.lives();
  });
}

// Nobody has suspended it: it has to rest until there is quota.
bool restsForQuota(const PlannerState& state) {
  return !state.spec.run_policy().suspend() && lacksQuota(state);
}

void setSuspended(PlannerState& state, const std::string& how) {
  const bool queued = restsForQuota(state);
  const std::string reason = queued ? "WaitsForQuota" : "JobSuspended";
  const std::string message = queued ? fmt::format("{}; {}", how, whyWithoutQuota(state)) : how;
  state.condition(kSuspended, kTrue, reason, message);
  settle(state, reason, message);
  state.event("Normal", reason, message);
  state.status.clear_start_time();
  deleteAll(state, reason);
}

// What the job rests for may change meanwhile.
void goOnResting(PlannerState& state) {
  deleteAll(state, "JobSuspended");
  const v1::Condition& told = *findCondition(state.status, kSuspended);
  const bool queued = restsForQuota(state);
  if (!queued && told.reason() != "WaitsForQuota") return;
  const std::string reason = queued ? "WaitsForQuota" : "JobSuspended";
  const std::string message =
      queued ? whyWithoutQuota(state) : "suspended while it waited for quota";
  if (told.reason() == reason && told.message().ends_with(message)) return;
  state.condition(kSuspended, kTrue, reason, message);
  state.condition(kReconciling, kFalse, reason, message);
}

bool workersSucceeded(const PlannerState& state, bool all) {
  bool any = false;
  for (const TaskView& task : state.tasks) {
    if (task.key.role != v1::ROLE_WORKER || !task.desired || task.spared) continue;
    if (!all && task.key.index != 0) continue;
    if (!task.finished) return false;
    any = true;
  }
  return any;
}

// The coordinator runs and answers, and has not been heard to say that the job ended: its last
// step, result and checkpoint are not known yet.
bool lastWordIsOpen(const PlannerState& state) {
  if (state.foreign() || !state.outcome().empty()) return false;
  const TaskKey coordinator = coordinatorOf(state.spec);
  return std::any_of(state.tasks.begin(), state.tasks.end(), [&](const TaskView& task) {
    return task.key == coordinator && task.lives() && !task.seen->unreachable;
  });
}

// True while it is waited for; who waits for Succeeded reads the result right after.
bool waitsForLastWord(PlannerState& state, const std::string& message) {
  if (!lastWordIsOpen(state)) return false;
  const UnixMillis now = state.input.unix_ms;
  const UnixMillis since = state.ends() ? transitionTime(state.status, kSucceeded) : now;
  const UnixMillis until = since + toMillis(kEndGrace);
  if (now >= until) return false;
  state.condition(kSucceeded, kUnknown, "Ending", message);
  state.wakeAt(until);
  state.plan.last_word = true;
  return true;
}

}  // namespace

void setFailed(PlannerState& state, std::string_view reason, const std::string& message) {
  state.condition(kFailed, kTrue, reason, message);
  state.condition(kStalled, kTrue, reason, message);
  settle(state, "JobFailed", message);
  state.status.set_completion_time(formatRfc3339(state.input.unix_ms));
  state.event("Warning", "JobFailed", fmt::format("{}: {}", reason, message));
}

void findSuccess(PlannerState& state) {
  const bool all = state.spec.run_policy().success_policy() == "AllWorkers";
  if (!state.ends() && !workersSucceeded(state, all)) return;
  const std::string message =
      all ? "every worker ended with success" : "worker-0 ended with success";
  if (waitsForLastWord(state, message + "; the job's last step and result are to be told")) return;
  state.condition(kSucceeded, kTrue, all ? "AllWorkersSucceeded" : "ChiefSucceeded", message);
  settle(state, "JobSucceeded", message);
  state.status.set_completion_time(formatRfc3339(state.input.unix_ms));
  state.event("Normal", "JobSucceeded", message);
}

// Not before the end is recorded: nobody would ever know of it.
void expire(PlannerState& state) {
  const v1::RunPolicy& policy = state.spec.run_policy();
  const bool recorded =
      hasStatus(state.recorded, kSucceeded, kTrue) || hasStatus(state.recorded, kFailed, kTrue);
  if (!policy.has_ttl_seconds_after_finished() || !recorded) return;
  const UnixMillis due = parseRfc3339(state.status.completion_time()) +
                         std::int64_t{policy.ttl_seconds_after_finished()} * 1000;
  if (state.input.unix_ms >= due) {
    state.plan.delete_job = true;
  } else {
    state.wakeAt(due);
  }
}

void cleanUp(PlannerState& state) {
  expire(state);
  const std::string& policy = state.spec.run_policy().clean_pod_policy();
  if (policy == "None") return;
  // Tasks of our runtime end by themselves when all steps are taken, with their last words written.
  // Of other programs the workers may, but their parameter servers serve for ever.
  const bool waits = state.is(kSucceeded, kTrue) && (!state.foreign() || aWorkerLives(state));
  const UnixMillis until =
      parseRfc3339(state.status.completion_time()) + (waits ? toMillis(kEndGrace) : 0);
  for (const TaskView& task : state.tasks) {
    if (task.seen == nullptr || task.seen->terminating) continue;
    if (!isLive(*task.seen) && !task.seen->lingers) {
      if (policy == "All") state.deleteTask(task, "JobFinished");
    } else if (state.input.unix_ms >= until) {
      state.deleteTask(task, "JobFinished");
    } else {
      state.wakeAt(until);
    }
  }
}

// Somebody cannot wait for the checkpoint.
bool stopsNow(const PlannerState& state) {
  const auto& annotations = state.input.observed.job.metadata().annotations();
  const auto found = annotations.find(kStopNowAnnotation);
  return found != annotations.end() && found->second == "true";
}

// Where the job has stopped, and what that costs.
std::string stoppedAt(const v1::JobProgress& progress) {
  if (progress.checkpoint_step() >= progress.step() || !progress.has_checkpoint())
    return fmt::format("stopped at step {}", progress.step());
  return fmt::format("stopped at step {} without a new checkpoint: it will go on from step {}",
                     progress.step(), progress.checkpoint_step());
}

bool suspend(PlannerState& state) {
  const bool wanted = state.spec.run_policy().suspend() || lacksQuota(state);
  const bool stopping = state.is(kSuspended, kUnknown);
  if (state.is(kSuspended, kTrue)) {
    if (wanted) goOnResting(state);
    return wanted;
  }
  // A stop that was begun is carried through, also when the wish is gone: tasks that stopped with
  // success would otherwise be taken for finished ones.
  if (!wanted && !stopping) return false;
  if (state.outcome() == "succeeded") {
    recordFinished(state);
    findSuccess(state);
  }
  if (!state.isTerminal()) findFailures(state);
  if (state.isTerminal()) return true;

  const UnixMillis now = state.input.unix_ms;
  const UnixMillis since = stopping ? transitionTime(state.status, kSuspended) : now;
  const bool unreachable = wasUnreachable(state, since);
  const std::chrono::seconds limit =
      stopSeconds(state.spec.run_policy()) * (unreachable ? kUnreachableFactor : 1);
  const UnixMillis checkpoint_by = since + toMillis(limit);
  const UnixMillis until = checkpoint_by + toMillis(kStopGrace);
  if (state.outcome() == "stopped") {
    setSuspended(state, stoppedAt(*state.progress()));
  } else if (!computes(state)) {
    setSuspended(state, state.foreign() ? "its programs are ended" : "no task is running");
  } else if (stopsNow(state)) {
    setSuspended(state, fmt::format("stopped without waiting for a checkpoint: annotation {}",
                                    kStopNowAnnotation));
  } else if (now >= until) {
    setSuspended(state, fmt::format("did not stop within {} s", limit.count()));
  } else {
    std::string message =
        unreachable ? fmt::format(
                          "the job checkpoints and stops, within {} s since agents did not "
                          "answer (AgentsReachable)",
                          limit.count())
                    : "the job checkpoints and stops";
    if (restsForQuota(state)) message += "; " + whyWithoutQuota(state);
    state.condition(kSuspended, kUnknown, "Stopping", message);
    if (!stopping) state.event("Normal", "JobStopping", message);
    state.plan.stop_by = state.input.now + std::chrono::milliseconds(checkpoint_by - now);
    state.wakeAt(until);
  }
  return true;
}

void resume(PlannerState& state) {
  const bool queued = state.input.observed.quota.has_value();
  const std::string reason = queued ? "QuotaGranted" : "JobResumed";
  const std::string message =
      queued ? fmt::format("there is quota for {} ps and {} workers", state.spec.ps().replicas(),
                           state.spec.worker().replicas())
      : state.foreign() ? "its programs start again"
                        : "the job goes on from its newest checkpoint";
  state.condition(kSuspended, kFalse, reason, message);
  state.event("Normal", reason, message);
  for (TaskView& task : state.tasks) {
    if (!task.desired || task.finished || !task.numberIsUsed()) continue;
    task.renumber();
    task.history.recent = 0;
    task.history.create_ms = 0;
  }
}

}  // namespace trainyard::control
