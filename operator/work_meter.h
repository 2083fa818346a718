// What the controller and its queue do, measured under the names of controller-runtime and
// client-go, and what became of the jobs.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/core/clock.h"
#include "base/metrics/bucket_counts.h"
#include "base/metrics/catalogue.h"
#include "operator/controller.h"
#include "operator/queue/work_queue.h"
#include "prometheus/metric_family.h"

namespace trainyard::control {

// Thread-safe.
class WorkMeter : public ReconcileObserver, public QueueObserver {
 public:
  // `clock` outlives it.
  explicit WorkMeter(const Clock& clock) : clock_(clock) {}

  void begins(const JobKey& key) override;
  void ended(const ReconcileNews& news) override;

  void waits(const std::string& key) override;
  void taken(const std::string& key) override;
  void done(const std::string& key) override;

  // A job that has been worked on for `limit` or longer, the first of them.
  std::optional<std::string> stuckAt(Duration limit) const;

  // All of the above up to now; `workers` may reconcile side by side.
  std::vector<prometheus::MetricFamily> collect(int workers) const;

 private:
  using Family = prometheus::MetricFamily;
  struct JobCounts {
    std::uint64_t created = 0, succeeded = 0, failed = 0, deleted = 0, restarts = 0;
  };
  void countJob(const ReconcileNews& news);
  void addReconciles(std::vector<Family>& families, int workers) const;
  void addQueue(std::vector<Family>& families) const;
  void addJobs(std::vector<Family>& families) const;

  const Clock& clock_;
  mutable std::mutex mutex_;
  std::map<std::string, std::uint64_t> results_{
      {"success", 0}, {"error", 0}, {"requeue", 0}, {"requeue_after", 0}};
  std::uint64_t terminal_ = 0;
  int active_ = 0;
  BucketCounts reconcile_times_{metric("controller_runtime_reconcile_time_seconds").buckets};
  BucketCounts queue_times_{metric("workqueue_queue_duration_seconds").buckets};
  BucketCounts work_times_{metric("workqueue_work_duration_seconds").buckets};
  std::map<std::string, TimePoint> waiting_since_;
  std::map<std::string, TimePoint> working_since_;
  std::set<JobKey> known_;                 // jobs that were seen and are not known to be gone
  std::map<std::string, JobCounts> jobs_;  // by namespace
};

}  // namespace trainyard::control
