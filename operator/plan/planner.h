// What should happen to a job, from what is. Pure: the same observation and time give the same
// plan. Level-based: events never reach it. Carrying out plans in turn reaches an empty one after a
// few rounds (create, then count what was created), and from then on every plan is empty until
// something is observed to change or `wake_at` has come.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/core/clock.h"
#include "operator/cluster/cluster.h"
#include "trainyard/v1/agent.pb.h"

namespace trainyard::control {

struct CreateTask {
  TaskKey key;
  std::uint32_t created = 0;
};
struct DeleteTask {
  TaskKey key;
  std::uint32_t created = 0;
  std::string reason;
};
// Nobody tells of the end of a task that is on its way out (Cluster::forgetTask).
struct ForgetTask {
  TaskKey key;
  std::uint32_t created = 0;
};
// The end of a task is recorded, so that its remains may go (Cluster::releaseTask).
struct ReleaseTask {
  TaskKey key;
  std::uint32_t created = 0;
};
// What is to be done about the job's place in its queue.
struct QuotaStep {
  enum class Kind { kClaim, kGiveBack, kDrop };
  Kind kind = Kind::kClaim;
  QuotaClaim claim = {};  // of kClaim
};
struct RecordedEvent {
  std::string type, reason, message;
};  // type: Normal | Warning

// In the order in which an applier carries it out: what must not be forgotten is recorded first.
// Only the first membership of a job is published before its status, which tells of it already.
struct Plan {
  std::optional<v1::JobStatus> status;  // set only when it differs from the recorded one
  // All that `status` tells is how many tasks of a job that starts are ready: it may be left out,
  // and nothing else of the plan follows from it.
  bool status_can_wait = false;
  std::vector<RecordedEvent> events;  // only beside a status: told once, when that is recorded
  std::optional<QuotaStep> quota;
  std::optional<v1::Membership> publish;
  std::vector<ReleaseTask> releases;  // sorted by key; none that is also deleted
  std::vector<DeleteTask> deletes;    // sorted by key
  std::vector<ForgetTask> forgets;    // sorted by key; none that is also released
  std::vector<TaskKey> claim_drops;   // whose PersistentVolumeClaims go, since the task is gone
  std::vector<CreateTask> creates;    // sorted by key
  bool delete_job = false;            // it has been finished for as long as it was to be kept
  // Ask the coordinator's task to checkpoint and stop (suspend), with its checkpoint written by
  // then. A level: set in every plan while the job should stop.
  std::optional<TimePoint> stop_by;
  bool last_word = false;            // the coordinator's is waited for: a level, too
  std::optional<TimePoint> wake_at;  // look again then, even if nothing happens
};

struct PlannerInput {
  JobObservation observed;
  std::optional<v1::JobProgress> progress;  // newest word of the job's coordinator; of programs of
                                            // the user's own, what they tell
  // `created` of the task that said so; the word of an earlier life of the coordinator is ignored.
  std::uint32_t progress_created = 0;
  // Since when it may be written down anew; nothing until its source says so.
  std::optional<TimePoint> progress_due;
  // What is written by the clock is due so much later (turnOf()).
  Duration turn{};
  TimePoint now;
  UnixMillis unix_ms = 0;
};

// Job life: Created -> Running (all tasks ready) -> [Restarting <-> Running] -> Succeeded | Failed;
// Suspended from anywhere but a terminal state. Rules in docs/conditions.md.
Plan planJob(const PlannerInput& input);

// A job's turn within `period`, always the same; from 0 to the period. Times in a status are whole
// seconds, and what all jobs write ten seconds later they would write in the same moment.
Duration turnOf(const v1::TrainingJob& job, Duration period);

// True when carrying the plan out would write nothing.
bool isEmpty(const Plan& plan);

}  // namespace trainyard::control
