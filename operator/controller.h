// Runs the jobs of a cluster: observe, plan, apply, again and again.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/core/allowance.h"
#include "base/core/clock.h"
#include "operator/apply/applier.h"
#include "operator/cluster/cluster.h"
#include "operator/progress/progress_source.h"
#include "operator/queue/work_queue.h"
#include "operator/record/event_recorder.h"

namespace trainyard::control {

// How one look at a job went.
struct ReconcileNews {
  JobKey key = {};
  Duration took{};
  Status status = absl::OkStatus();
  bool permanent = false;  // a failure that needs somebody
  // The job's state and restarts before and after; the same where nothing was written.
  std::string state_before = {}, state_after = {};
  std::int64_t restarts_before = 0, restarts_after = 0;
  bool gone = false;  // there is no such job (any more)
};

// Thread-safe; must be quick.
class ReconcileObserver {
 public:
  virtual ~ReconcileObserver() = default;
  virtual void begins(const JobKey& key) = 0;
  virtual void ended(const ReconcileNews& news) = 0;
};

struct ControllerOptions {
  QueueOptions queue;
  ReconcileObserver* observer = nullptr;  // outlives the controller
  // Jobs that are looked at side by side, each on a thread.
  int threads = 1;
  // Tasks of one job that are created, deleted or released side by side, where that is quicker.
  int writes_at_once = 1;
  // Of jobs that write at the same second each has its turn within this time of it.
  Duration turns{};
  // Of jobs that start, how many of their tasks are ready is written so often, all together.
  double counts_per_second = 4;
  // A job is looked at so often even if nothing is heard of it.
  Duration resync = std::chrono::minutes(1);
  // While an observation does not show what was written last, which the next change ends.
  Duration aged_retry = std::chrono::milliseconds(500);
  // After a failure that trying again cannot mend; a change of the job comes through at once.
  Duration permanent_retry = std::chrono::seconds(30);
};

// Counted by how a reconcile ended; each from zero at the start.
struct ReconcileCounts {
  std::uint64_t success = 0;
  std::uint64_t conflict = 0;   // the record changed meanwhile
  std::uint64_t retry = 0;      // a passing failure
  std::uint64_t permanent = 0;  // a failure that needs somebody
};

// Lifecycle: construct; start() takes up all jobs of the cluster and works on threads of its own,
// never on two for the same job; stop() (or the destructor) ends them: of the plans in hand nothing
// more is begun than the calls that are under way.
// Without start(), or after stop(), reconcileOnce() and runDue() do the same work on the caller's
// thread; never use both at a time.
//
// The cluster and the progress source call back from their threads, also after this object's end:
// then they find nobody. All three references outlive it.
class Controller {
 public:
  Controller(Cluster& cluster, ProgressSource& progress, const Clock& clock,
             ControllerOptions options);
  ~Controller();

  // Watches, lists, then starts the threads. Fails as Cluster::watch and listJobs do.
  Status start();
  void stop();

  // One look at one job; whatever it should be looked at for again is in the queue afterwards. The
  // failure is the applier's or the observation's, with its class; a job that is gone is no
  // failure.
  Status reconcileOnce(const JobKey& key);

  // Reconciles what is due until nothing is; returns how many reconciles that took. At most `max`.
  int runDue(int max = 1000);
  // Watches and lists, without threads: what start() does first.
  Status takeUp();

  ReconcileCounts counts() const;
  WorkQueue& queue() { return *queue_; }

 private:
  std::function<void(const JobKey&)> adder() const;
  void loop();
  void work(const std::string& name);
  void leaveOutCounts(TimePoint now, Plan& plan);
  void followUp(const JobKey& key, const JobObservation& observed, const Plan& plan);

  Cluster& cluster_;
  ProgressSource& progress_;
  const Clock& clock_;
  const ControllerOptions options_;
  // Shared with the callbacks only weakly.
  const std::shared_ptr<WorkQueue> queue_;
  EventRecorder recorder_;
  Applier applier_;
  std::mutex mutex_;
  Allowance counts_allowed_;  // guarded by mutex_
  std::atomic<std::uint64_t> success_{0}, conflict_{0}, retry_{0}, permanent_{0};
  std::vector<std::thread> threads_;
};

}  // namespace trainyard::control
