// What the controller needs from the place where tasks run. Implementations: operator/local (agent
// processes), operator/kube (pods, later), tests/fakes. One conformance suite runs on all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "operator/cluster/failure_policy.h"
#include "operator/cluster/quota.h"
#include "trainyard/v1/agent.pb.h"
#include "trainyard/v1/job.pb.h"
#include "trainyard/v1/membership.pb.h"

namespace trainyard::control {

struct JobKey {
  std::string ns;
  std::string name;
  auto operator<=>(const JobKey&) const = default;
};

struct TaskKey {
  v1::Role role = v1::ROLE_PS;
  std::uint32_t index = 0;
  auto operator<=>(const TaskKey&) const = default;
};
std::string_view roleName(v1::Role role);  // "ps", "worker"
std::string toString(const TaskKey& key);  // "ps-0"
// Nothing unless `text` is "ps-N" or "worker-N".
std::optional<TaskKey> parseTaskKey(std::string_view text);
JobKey keyOf(const v1::TrainingJob& job);
std::string toString(const JobKey& key);    // "namespace/name"
JobKey parseJobKey(std::string_view text);  // the inverse

enum class TaskPhase { kPending, kRunning, kSucceeded, kFailed };

struct TaskExit {
  int code = 0;
  int signal = 0;
  std::string cause;  // one line for people: "killed by signal 9", "exit code 3: data.images: ..."
  UnixMillis at = 0;  // when, by the clock of the task's machine; 0: not known
};

// What keeps a task from starting: a word (Unschedulable, ImagePullBackOff, ...) and a line for
// people.
struct TaskWait {
  std::string reason;
  std::string message;
};

// One task as it is now. At most one live task exists per (job, role, index).
struct TaskObservation {
  TaskKey key;
  std::uint32_t created = 0;  // the operator's part of the incarnation
  TaskPhase phase = TaskPhase::kPending;
  bool ready = false;
  bool terminating = false;
  // Of one that is terminating: when it was to have ended at the latest, by the clock of the
  // cluster; 0: not known.
  UnixMillis end_due = 0;
  // It was ended from outside (eviction, its launcher's end), not by a fault of its own. A task
  // that is no longer there at all counts as disrupted too.
  bool disrupted = false;
  std::string host;  // a name for `ip`; "" where nobody is told it
  std::string ip;
  std::uint32_t port = 0;        // 0: not yet known
  std::uint32_t restarts = 0;    // times the agent started its child again in place
  bool began = true;             // the agent has started its child; true where nobody knows
  std::optional<TaskExit> exit;  // of the agent, in kSucceeded and kFailed
  // Of one that has failed or is being deleted, where tasks have conditions.
  std::vector<PodCondition> conditions;
  std::optional<TaskWait> waiting;  // in kPending, where it is known
  // What the job's coordinator said last, where its task has ended and left that behind.
  std::optional<v1::JobProgress> last_word;
  // It runs, but its agent has not answered for long; why: a condition's reason, and a line.
  std::optional<TaskWait> unreachable;
  // It has ended, but what else there is around it runs on and keeps its place: a pod's sidecars.
  bool lingers = false;
  // It does not go away, and its record stays, until releaseTask().
  bool held = false;
  // When fewer workers are wanted, those of the lowest cost leave first (Kubernetes' annotation
  // controller.kubernetes.io/pod-deletion-cost).
  std::int32_t deletion_cost = 0;
};

struct JobObservation {
  v1::TrainingJob job;                       // spec and status as recorded
  std::vector<TaskObservation> tasks;        // sorted by key
  std::optional<v1::Membership> membership;  // as recorded
  // Why none of its tasks can be created, as long as the spec stays as it is: CommandRequired, ...
  std::optional<TaskWait> obstacle;
  // Why a task could not be created at the last attempt: QuotaExceeded, ...
  std::optional<TaskWait> refusal;
  // Why a checkpoint does not outlive the tasks that wrote it; nothing where it does, or may.
  std::optional<TaskWait> passing_storage;
  // Of a job that waits in a queue: its tasks run while it is granted quota.
  std::optional<QuotaObservation> quota;
  // The tasks that have PersistentVolumeClaims, of a job some of whose claims go with their task
  // (volume_claims.h).
  std::vector<TaskKey> volume_claims;
  // What tasks are made from, where that is the cluster's to say; pinned in the status.
  v1::Images images;
};

// Calls may block for milliseconds; thread-safe. Errors carry a failure class. A write that may or
// may not have happened is an error; the next observation tells.
class Cluster {
 public:
  virtual ~Cluster() = default;
  // Calls `changed` (from any thread) whenever something of a job may have changed; level-based.
  virtual Status watch(std::function<void(const JobKey&)> changed) = 0;
  virtual StatusOr<std::vector<JobKey>> listJobs() = 0;
  // NOT_FOUND when the job is gone. ABORTED when it cannot be seen yet what was written last:
  // `changed` tells when it can.
  virtual StatusOr<JobObservation> observe(const JobKey& key) = 0;
  // ALREADY_EXISTS when a task of that key lives or is terminating (a proof, not a failure). A task
  // that has ended is deleted before its key is created again. The next observation shows the new
  // task. Its PersistentVolumeClaims, if the job has templates for them, are there before it: made,
  // or found as a former life of the task has left them.
  virtual Status createTask(const v1::TrainingJob& job, const TaskKey& task,
                            std::uint32_t created) = 0;
  // Ends exactly the task that was created as `created`, or forgets it when it has ended; NOT_FOUND
  // when another or none is there. It is `terminating` until it is gone.
  virtual Status deleteTask(const v1::TrainingJob& job, const TaskKey& task,
                            std::uint32_t created) = 0;
  // The same of a task that is terminating and of whose end nobody tells: its record goes at once,
  // and its key is free. It may still run where it was, unheard.
  virtual Status forgetTask(const v1::TrainingJob& job, const TaskKey& task,
                            std::uint32_t created) {
    return deleteTask(job, task, created);
  }
  // The task's end is recorded: nothing needs its remains any more. Does not end one that lives.
  // NOT_FOUND when another or none is there.
  virtual Status releaseTask(const v1::TrainingJob& /*job*/, const TaskKey& /*task*/,
                             std::uint32_t /*created*/) {
    return absl::OkStatus();
  }
  // Deletes the PersistentVolumeClaims of a task that is gone, if there are any.
  virtual Status dropVolumeClaims(const v1::TrainingJob& /*job*/, const TaskKey& /*task*/) {
    return absl::OkStatus();
  }
  // Records what the job asks of its queue, whether it has asked before or not.
  virtual Status claimQuota(const v1::TrainingJob& /*job*/, const QuotaClaim& /*claim*/) {
    return absl::OkStatus();
  }
  // The tasks that were to stop are gone: others may have their room, and the job waits again.
  virtual Status giveQuotaBack(const v1::TrainingJob& /*job*/) { return absl::OkStatus(); }
  // It leaves the queue, with what it holds.
  virtual Status dropClaim(const v1::TrainingJob& /*job*/) { return absl::OkStatus(); }
  // Deletes the job and all that belongs to it (a finished one, at the end of its time).
  virtual Status deleteJob(const v1::TrainingJob& job) = 0;
  // Records the membership; FAILED_PRECONDITION unless its revision is the recorded one + 1 (or
  // equal with equal content).
  virtual Status publish(const v1::TrainingJob& job, const v1::Membership& membership) = 0;
  // Replaces the status; FAILED_PRECONDITION when the record changed since `job` was read.
  virtual Status writeStatus(const v1::TrainingJob& job, const v1::JobStatus& status) = 0;
  virtual Status recordEvent(const v1::TrainingJob& job, std::string_view type,
                             std::string_view reason, std::string_view message) = 0;
};

}  // namespace trainyard::control
