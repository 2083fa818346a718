// What the agent knows of its task, shared between the main loop and the RPC and HTTP threads.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "agent/membership/membership_store.h"
#include "agent/supervisor/supervisor.h"
#include "agent/telling/told_task.h"
#include "agent/traffic/task_metrics.h"
#include "base/core/clock.h"
#include "base/core/status.h"
#include "trainyard/v1/agent.pb.h"
#include "trainyard/v1/measurements.pb.h"

namespace trainyard::agent {

// Thread-safe.
class TaskHub {
 public:
  // `store` and `metrics` outlive the hub. `on_membership` is called (from any thread) when a push
  // was taken over.
  TaskHub(TaskIdentity self, MembershipStore& store, TaskMetrics& metrics,
          std::function<void()> on_membership);

  // See MembershipStore::adopt; `sha256`, where given, must be membershipHash() of `membership`
  // (INVALID_ARGUMENT). Returns the revision held afterwards.
  StatusOr<std::int64_t> push(const v1::Membership& membership, const std::string& sha256);

  // Takes a report and says what the agent wants. FAILED_PRECONDITION when it is not of the
  // program's present life.
  StatusOr<v1::RuntimeDirective> report(const v1::RuntimeReport& report);

  // Takes measurements, under the same condition.
  Status record(const v1::Measurements& measured);

  // Takes what process `process` of a program of the user's own has said of itself; see
  // parseTelling(). What is no such thing is counted, and logged once for each start.
  void tell(std::uint32_t process, std::string_view datagram);

  // The program was started or has ended. A new life has no report yet; the last report of an ended
  // one stays to be read.
  void setChild(const ChildView& view);

  // From now on every directive asks to checkpoint and stop the job, within so long of the newest
  // call that says how long.
  void stopJob(const std::string& reason, std::optional<Duration> within);

  v1::TaskState state() const;
  // The program runs and says that it is ready; one of the user's own: it runs.
  bool ready() const;
  // What a readiness probe is told: ready(); a task that has never been is waited for, so long at
  // most. One that has ended well counts as ready, and so does one whose agent ends.
  bool awaitReady(Duration most) const;
  // The agent ends: nobody waits any more.
  void endWaits();
  // How often each process of the running program has reported; 0 while none runs.
  std::vector<std::uint64_t> reports() const;

 private:
  // mutex_ is held.
  bool readyLocked() const;
  void changedLocked();
  // Which process of the program says `what`. FAILED_PRECONDITION unless it is one of its present
  // life. mutex_ is held.
  StatusOr<std::uint32_t> sender(const char* what, const std::string& job_uid, const v1::TaskId& id,
                                 const v1::Incarnation& incarnation) const;
  // What the agent can say of a program that does not report: what it knows itself, and what the
  // program has told. mutex_ is held.
  v1::RuntimeReport ownReport() const;

  const TaskIdentity self_;
  MembershipStore& store_;
  TaskMetrics& metrics_;
  const std::function<void()> on_membership_;

  mutable std::mutex mutex_;
  ChildView view_;
  bool has_report_ = false;
  std::vector<std::uint64_t> reports_;     // by process
  std::vector<v1::RuntimeReport> newest_;  // likewise; empty: it has not reported
  ToldTask told_;
  bool refused_ = false;  // something that the present start has told
  bool stop_job_ = false;
  std::optional<TimePoint> stop_by_;
  bool was_ready_ = false;
  bool ending_ = false;
  mutable std::condition_variable changed_;  // what awaitReady() looks at
};

}  // namespace trainyard::agent
