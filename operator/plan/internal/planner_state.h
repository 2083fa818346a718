// The working state of one call of planJob; planner.cc leads through the steps, the other files of
// this folder carry them out.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "operator/plan/internal/conditions.h"
#include "operator/plan/internal/job_view.h"
#include "operator/plan/planner.h"

namespace trainyard::control {

// Of several tasks a message names so many.
inline constexpr int kNamesMax = 5;
// The last checkpoint may take so many times as long where the agents do not answer: whom we cannot
// tell may be told later.
inline constexpr int kUnreachableFactor = 2;
// So much later the coordinator's word that it took longer must be here.
inline constexpr std::chrono::seconds kStopGrace{5};
// How long the coordinator's last word may take after the workers' success, and tasks of our
// runtime to end by themselves after that.
inline constexpr std::chrono::seconds kEndGrace{15};
// How long a worker of our runtime that is not wanted any more may take to end by itself, after the
// membership without it is published.
inline constexpr std::chrono::seconds kLeaveGrace{30};
// ... and one of which it was not heard yet that its program has begun.
inline constexpr std::chrono::seconds kBeginGrace{5};
// ... and a parameter server, which others need until they hold its part of the model; that may
// wait for tasks that are still to come.
inline constexpr std::chrono::minutes kDrainGrace{10};
// So long the others wait for a task that does not come, or come back, where the job may do with
// fewer of its role.
inline constexpr std::chrono::seconds kSpareAfter{30};
// Before a lost task is created again: base, doubled with each loss of that index, up to the
// maximum; from the start again after a life of kHealthyLife.
inline constexpr std::chrono::seconds kRestartBase{1};
inline constexpr std::chrono::seconds kRestartMax{60};
inline constexpr std::chrono::minutes kHealthyLife{10};
// Programs of the user's own: an exit this soon after another task was lost comes of that.
inline constexpr std::chrono::seconds kPeerLoss{10};
// ... and that loss may be seen after what came of it: so long an exit code that would end the job
// is not judged.
inline constexpr std::chrono::seconds kExitGrace{5};

// A task whose node does not tell of its end: so long after that was due it is given up, where the
// job allows it. A node that is only busy tells by then.
inline constexpr std::chrono::seconds kEndUntold{30};

inline std::int64_t toMillis(Duration d) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(d).count();
}

struct PlannerState {
  // `wish`: the spec as it is recorded; `in` may want fewer tasks.
  PlannerState(const PlannerInput& in, const v1::JobSpec& wish)
      : input(in),
        wanted(wish),
        spec(in.observed.job.spec()),
        recorded(in.observed.job.status()),
        status(recorded),
        tasks(viewTasks(in)) {}

  const PlannerInput& input;
  const v1::JobSpec& wanted;
  const v1::JobSpec& spec;
  const v1::JobStatus& recorded;
  v1::JobStatus status;  // becomes plan.status when it differs from `recorded`
  std::vector<TaskView> tasks;
  Plan plan;

  // What the present life of the coordinator said about the end: "", succeeded, stopped or failed.
  std::string_view outcome() const;
  // Its word as a whole; null when there is none.
  const v1::JobProgress* progress() const;

  void condition(std::string_view type, std::string_view value, std::string_view reason,
                 const std::string& message);
  void event(std::string_view type, std::string_view reason, const std::string& message);
  // Look again at `at`.
  void wakeAt(UnixMillis at);
  void deleteTask(const TaskView& task, std::string_view reason);

  // The tasks run programs of the user's own, which know nothing of the job.
  bool foreign() const { return !spec.has_training(); }
  bool is(std::string_view type, std::string_view value) const {
    return hasStatus(status, type, value);
  }
  bool isTerminal() const { return is(kSucceeded, kTrue) || is(kFailed, kTrue); }
  // It has succeeded but for the coordinator's last word: nothing else is to be done any more.
  bool ends() const { return is(kSucceeded, kUnknown); }
};

// recovery.cc: what became of each desired task since the last look.
// Records the workers that ended with success.
void recordFinished(PlannerState& state);
// Sets Failed when a task cannot succeed any more, the coordinator gave up, or time is over.
void findFailures(PlannerState& state);
// Counts losses and restarts in place, decides the next life of lost tasks; sets Failed when there
// were too many.
void countLosses(PlannerState& state);
// Of a job that has ended: a program that died in its last moments was started again to find that
// out. Those of foreign programs follow from the end of others.
void countLastRestarts(PlannerState& state);
// Creates what is due, lets go who is to leave, deletes what a life before the present one left
// behind or nobody wants, and what keeps the place of a finished worker.
void createAndSweep(PlannerState& state);

// unreachable.cc: gives up tasks on nodes that nobody hears of, where the job says so.
void forgetUnreachable(PlannerState& state);

// volume_claims.cc: gives up what tasks that are not wanted any more have kept, where the job says
// so.
void dropVolumeClaims(PlannerState& state);

// sparing.cc: marks the tasks that the others go on without.
void spareTasks(PlannerState& state);

// reach.cc: whether the agents of the tasks that run answer us.
void judgeReach(PlannerState& state);
// Since `since` there was a time when they did not.
bool wasUnreachable(const PlannerState& state, UnixMillis since);

// resizing.cc: tells of tasks that come and go; after createAndSweep. `well`: every task that is
// wanted is ready, as `message` says.
void judgeResizing(PlannerState& state, bool well, const std::string& message);

// waiting.cc: why nothing goes on.
// True when no task can be created as the job stands; the job is Stalled then.
bool meetsObstacle(PlannerState& state);
// Not Stalled any more, where it was.
void forgetObstacle(PlannerState& state);
// While not every task is well: the condition's reason, and more for people ("" where there is
// none).
TaskWait whatIsWaitedFor(const PlannerState& state);
// Somebody has to mend what the apiserver refuses. Before the condition says so.
void tellOfRefusal(PlannerState& state, const TaskWait& wait);

// quota.cc: the job's place in a queue.
// The same with no more tasks wanted than are granted room; nothing where all are.
std::optional<PlannerInput> withinQuota(const PlannerInput& input);
// A job that waits in a queue may not run.
bool lacksQuota(const PlannerState& state);
// Why, for people.
std::string whyWithoutQuota(const PlannerState& state);
// What its queue is to be told, and whether the job runs with fewer tasks than it wants. When all
// else is decided.
void judgeQuota(PlannerState& state);

// ending.cc: Succeeded, Failed and Suspended.
void findSuccess(PlannerState& state);
void setFailed(PlannerState& state, std::string_view reason, const std::string& message);
// Deletes what a finished job leaves, by cleanPodPolicy.
void cleanUp(PlannerState& state);
// True when the job is or becomes suspended, or stops for it: nothing else is to be done then.
bool suspend(PlannerState& state);
// Starts a suspended job anew: higher numbers for all tasks.
void resume(PlannerState& state);

}  // namespace trainyard::control
