#include "operator/plan/planner.h"

#include <algorithm>
#include <functional>

#include "base/core/rfc3339.h"
#include "fmt/format.h"
#include "google/protobuf/util/message_differencer.h"
#include "operator/cluster/task_keys.h"
#include "operator/plan/internal/membership.h"
#include "operator/plan/internal/planner_state.h"
#include "operator/plan/internal/status_report.h"

namespace trainyard::control {

namespace {

constexpr std::string_view kManager = "trainyard.dev/operator";
// How Kubernetes says that a job is deleted without what belongs to it.
constexpr std::string_view kOrphanFinalizer = "orphan";

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

// Told at the start, when something can still be done about it.
void judgeStorage(PlannerState& state) {
  if (const auto& passing = state.input.observed.passing_storage) {
    if (!state.is(kCheckpointDurable, kFalse)) {
      state.event("Warning", passing->reason, passing->message);
    }
    return state.condition(kCheckpointDurable, kFalse, passing->reason, passing->message);
  }
  if (state.is(kCheckpointDurable, kFalse)) {
    state.condition(kCheckpointDurable, kTrue, "StorageVolumeSet",
                    "spec.storage.volume names a volume that outlives pods");
  }
}

struct Readiness {
  int desired = 0, well = 0, spared = 0;
  bool spares_ps = false;
  std::string missing;  // names, the first few of them
};

Readiness readinessOf(const PlannerState& state) {
  Readiness tasks;
  int named = 0;
  for (const TaskView& task : state.tasks) {
    if (!task.desired) continue;
    ++tasks.desired;
    tasks.spared += task.spared ? 1 : 0;
    tasks.spares_ps |= task.spared && task.key.role == v1::ROLE_PS;
    if (task.isWell()) {
      ++tasks.well;
    } else if (++named <= kNamesMax) {
      tasks.missing += fmt::format("{}{}", tasks.missing.empty() ? "" : ", ", toString(task.key));
    }
  }
  if (named > kNamesMax) tasks.missing += ", ...";
  return tasks;
}

// Some tasks do not come, and the job runs without them.
void goOnWithoutSpared(PlannerState& state, std::string_view reason, const TaskWait& wait,
                       const std::string& message) {
  if (!state.is(kRunning, kTrue) || state.is(kRestarting, kTrue))
    state.event("Warning", reason, message);
  if (state.is(kRestarting, kTrue)) state.condition(kRestarting, kFalse, reason, message);
  judgeResizing(state, false, message);
  state.condition(kRunning, kTrue, reason, message);
  state.condition(kReconciling, kTrue, wait.reason, message);
}

void waitForTasks(PlannerState& state, const Readiness& tasks) {
  const bool goes_on = tasks.spared > 0 && tasks.well + tasks.spared == tasks.desired;
  const TaskWait wait = whatIsWaitedFor(state);
  const std::string message =
      fmt::format("{} of {} tasks are ready; {} {}{}{}", tasks.well, tasks.desired,
                  goes_on ? "goes on without" : "waiting for", tasks.missing,
                  wait.message.empty() ? "" : "; ", wait.message);
  if (goes_on) {
    goOnWithoutSpared(state, tasks.spares_ps ? kServersMissing : kWorkersMissing, wait, message);
  } else {
    // A task that is not ready for a moment, or a new one, does not stop a job that runs.
    const bool runs = state.is(kRunning, kTrue) && !state.is(kRestarting, kTrue);
    judgeResizing(state, false, message);
    state.condition(kRunning, runs ? kTrue : kFalse, "TasksNotReady", message);
    tellOfRefusal(state, wait);
    state.condition(kReconciling, kTrue, wait.reason, message);
  }
}

void judgeReadiness(PlannerState& state) {
  const Readiness tasks = readinessOf(state);
  if (tasks.well < tasks.desired) return waitForTasks(state, tasks);
  const bool ran = state.is(kRunning, kTrue);
  const std::string message = fmt::format("{} of {} tasks are ready", tasks.desired, tasks.desired);
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
  if (state.ends()) return findSuccess(state);
  if (!state.input.observed.obstacle) forgetObstacle(state);
  if (suspend(state)) return;
  if (meetsObstacle(state)) return;
  if (state.is(kSuspended, kTrue)) resume(state);
  if (!state.status.has_start_time()) {
    state.status.set_start_time(formatRfc3339(state.input.unix_ms));
  }
  recordFinished(state);
  spareTasks(state);
  findSuccess(state);
  if (state.ends()) return;
  if (!state.isTerminal()) findFailures(state);
  if (!state.isTerminal()) countLosses(state);
  if (state.isTerminal()) return;
  createAndSweep(state);
  state.plan.publish = nextMembership(state.input, state.tasks);
  judgeReadiness(state);
}

// The first one is published before the status is written, which can tell of it thus.
void reportMembership(PlannerState& state) {
  const auto& recorded = state.input.observed.membership;
  const auto& membership = recorded ? recorded : state.plan.publish;
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
    const auto same_forgotten = [&](const ForgetTask& other) { return other.key == task.key; };
    const bool forgotten =
        std::any_of(state.plan.forgets.begin(), state.plan.forgets.end(), same_forgotten);
    if (recorded && !deleted && !forgotten)
      state.plan.releases.push_back({task.key, task.seen->created});
  }
}

// The end of the job, which is recorded, was told by a later word: what a task left behind is there
// only as long as its remains.
bool isOutdated(const PlannerState& state, const v1::JobProgress& progress) {
  const bool over = hasStatus(state.recorded, kSuspended, kTrue) ||
                    hasStatus(state.recorded, kSucceeded, kTrue) ||
                    hasStatus(state.recorded, kFailed, kTrue);
  return over && !state.foreign() && progress.outcome().empty();
}

// When a job starts, each of its tasks changes the counts twice. The number of a task's life must
// not be forgotten, but as long as the task is held it cannot go unseen.
bool tellsOnlyCounts(const PlannerState& state) {
  const bool starts = state.status.state() == kCreated && state.recorded.state() == kCreated;
  if (!starts || !state.plan.events.empty()) return false;
  const bool held = std::all_of(state.tasks.begin(), state.tasks.end(), [](const TaskView& task) {
    return task.listed ? task.current() : task.seen == nullptr || task.seen->held;
  });
  return onlyCounts(state.recorded, state.status, held);
}

// How many jobs an apiserver can start hangs by the writes for each: counts wait for something that
// is news, or for the end of an interval, and then for whoever carries out the plans of all jobs.
void writeStatus(PlannerState& state) {
  const bool only_counts = tellsOnlyCounts(state);
  if (only_counts && state.status.has_start_time()) {
    const UnixMillis due =
        parseRfc3339(state.status.start_time()) + toMillis(kProgressInterval + state.input.turn);
    if (state.input.unix_ms < due) return state.wakeAt(due);
  }
  state.plan.status = state.status;
  state.plan.status_can_wait = only_counts;
}

// Fills what only reports, and keeps the status when anything in it is new.
void finish(PlannerState& state) {
  reportMembership(state);
  if (!state.isTerminal()) rememberNumbers(state);
  reportRoles(state.input.observed.job, state.tasks, &state.status);
  recordHistories(state.tasks, &state.status);
  state.status.set_state(std::string(deriveState(state.status)));
  const v1::JobProgress* progress = state.progress();
  if (progress != nullptr && !isOutdated(state, *progress)) {
    const bool state_changed = state.status.state() != state.recorded.state();
    reportProgress(*progress, state.input, state_changed, &state.status);
    if (state.status.has_checkpoint())
      state.status.mutable_checkpoint()->set_durable(!state.input.observed.passing_storage);
  }
  if (sameStatus(state.status, state.recorded)) {
    state.plan.events.clear();
  } else {
    writeStatus(state);
  }
}

// The job is being deleted. Who deletes it with the policy Orphan wants its tasks to live on, and
// to be able to delete them.
void leave(PlannerState& state) {
  const auto& finalizers = state.input.observed.job.metadata().finalizers();
  const bool orphans =
      std::find(finalizers.begin(), finalizers.end(), kOrphanFinalizer) != finalizers.end();
  for (const TaskView& task : state.tasks) {
    if (task.seen == nullptr) continue;
    if (!orphans) state.deleteTask(task, "JobDeleted");
    if (task.seen->held && (orphans || task.seen->terminating)) {
      state.plan.releases.push_back({task.key, task.seen->created});
    }
  }
}

}  // namespace

const v1::JobProgress* PlannerState::progress() const {
  if (!input.progress) return nullptr;
  if (foreign()) return &*input.progress;  // of no task in particular
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

namespace {

Plan planTasks(const PlannerInput& input, const v1::JobSpec& wanted) {
  PlannerState state(input, wanted);
  if (input.observed.job.metadata().has_deletion_timestamp()) {
    leave(state);
    return state.plan;
  }
  begin(state);
  judgeReach(state);
  if (state.isTerminal()) {
    countLastRestarts(state);
  } else {
    judgeStorage(state);
    advance(state);
  }
  if (state.isTerminal()) cleanUp(state);
  forgetUnreachable(state);
  release(state);
  dropVolumeClaims(state);
  judgeQuota(state);
  finish(state);
  return state.plan;
}

}  // namespace

Plan planJob(const PlannerInput& input) {
  if (isManagedElsewhere(input.observed.job.spec())) return {};
  const auto within = withinQuota(input);
  return planTasks(within ? *within : input, input.observed.job.spec());
}

Duration turnOf(const v1::TrainingJob& job, Duration period) {
  constexpr std::size_t kTurns = 1000;
  const std::size_t turn = std::hash<std::string>()(job.metadata().uid()) % kTurns;
  return period / kTurns * turn;
}

bool isEmpty(const Plan& plan) {
  return !plan.status && plan.events.empty() && !plan.quota && !plan.publish &&
         plan.deletes.empty() && plan.forgets.empty() && plan.releases.empty() &&
         plan.claim_drops.empty() && plan.creates.empty() && !plan.delete_job;
}

}  // namespace trainyard::control
