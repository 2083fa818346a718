#include "operator/work_meter.h"

#include <algorithm>
#include <utility>

#include "base/http/metrics.h"

namespace trainyard::control {
namespace {

const MetricLabels kController = {{"controller", "trainingjob"}};
const MetricLabels kQueue = {{"name", "trainingjob"}, {"controller", "trainingjob"}};

// When `key` was put in, and out with it; nothing when it was not.
std::optional<TimePoint> takeOut(std::map<std::string, TimePoint>& from, const std::string& key) {
  const auto found = from.find(key);
  if (found == from.end()) return std::nullopt;
  const TimePoint since = found->second;
  from.erase(found);
  return since;
}

prometheus::MetricFamily family(const MetricSpec& spec, const MetricLabels& labels, double value) {
  prometheus::MetricFamily made = makeFamily(spec);
  addMetric(made, labels, value);
  return made;
}

prometheus::MetricFamily histogram(const MetricSpec& spec, const MetricLabels& labels,
                                   const BucketCounts& seen) {
  prometheus::MetricFamily made = makeFamily(spec);
  addHistogram(made, labels, spec, seen.counts(), seen.sum());
  return made;
}

}  // namespace

void WorkMeter::begins(const JobKey& key) {
  const std::lock_guard lock(mutex_);
  ++active_;
  jobs_[key.ns];  // counters are born at zero
}

void WorkMeter::ended(const ReconcileNews& news) {
  const std::lock_guard lock(mutex_);
  --active_;
  reconcile_times_.observe(toSeconds(news.took));
  const bool conflict = absl::IsAborted(news.status);
  ++results_[news.status.ok() ? "success" : conflict ? "requeue" : "error"];
  if (!news.status.ok() && !conflict && news.permanent) ++terminal_;
  countJob(news);
}

void WorkMeter::countJob(const ReconcileNews& news) {
  JobCounts& counts = jobs_[news.key.ns];
  if (news.gone) {
    counts.deleted += known_.erase(news.key);
    return;
  }
  if (!news.state_after.empty()) known_.insert(news.key);
  if (news.state_before.empty() && !news.state_after.empty()) ++counts.created;
  counts.restarts += static_cast<std::uint64_t>(
      std::max<std::int64_t>(0, news.restarts_after - news.restarts_before));
  if (news.state_before == news.state_after) return;
  if (news.state_after == "Succeeded") ++counts.succeeded;
  if (news.state_after == "Failed") ++counts.failed;
}

void WorkMeter::waits(const std::string& key) {
  const std::lock_guard lock(mutex_);
  waiting_since_.try_emplace(key, clock_.now());
}

void WorkMeter::taken(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const TimePoint now = clock_.now();
  if (const auto since = takeOut(waiting_since_, key))
    queue_times_.observe(toSeconds(now - *since));
  working_since_[key] = now;
}

void WorkMeter::done(const std::string& key) {
  const std::lock_guard lock(mutex_);
  if (const auto since = takeOut(working_since_, key))
    work_times_.observe(toSeconds(clock_.now() - *since));
}

std::optional<std::string> WorkMeter::stuckAt(Duration limit) const {
  const std::lock_guard lock(mutex_);
  const TimePoint now = clock_.now();
  for (const auto& [key, since] : working_since_) {
    if (now - since >= limit) return key;
  }
  return std::nullopt;
}

std::vector<prometheus::MetricFamily> WorkMeter::collect(int workers) const {
  const std::lock_guard lock(mutex_);
  std::vector<Family> families;
  addReconciles(families, workers);
  addQueue(families);
  addJobs(families);
  return families;
}

void WorkMeter::addReconciles(std::vector<Family>& families, int workers) const {
  Family total = makeFamily(metric("controller_runtime_reconcile_total"));
  for (const auto& [result, count] : results_) {
    MetricLabels labels = kController;
    labels.emplace_back("result", result);
    addMetric(total, labels, static_cast<double>(count));
  }
  families.push_back(std::move(total));
  families.push_back(family(metric("controller_runtime_reconcile_errors_total"), kController,
                            static_cast<double>(results_.at("error"))));
  families.push_back(family(metric("controller_runtime_terminal_reconcile_errors_total"),
                            kController, static_cast<double>(terminal_)));
  families.push_back(histogram(metric("controller_runtime_reconcile_time_seconds"), kController,
                               reconcile_times_));
  families.push_back(
      family(metric("controller_runtime_max_concurrent_reconciles"), kController, workers));
  families.push_back(family(metric("controller_runtime_active_workers"), kController, active_));
}

void WorkMeter::addQueue(std::vector<Family>& families) const {
  families.push_back(histogram(metric("workqueue_queue_duration_seconds"), kQueue, queue_times_));
  families.push_back(histogram(metric("workqueue_work_duration_seconds"), kQueue, work_times_));
  const TimePoint now = clock_.now();
  double sum = 0;
  double longest = 0;
  for (const auto& [key, since] : working_since_) {
    const double seconds = toSeconds(now - since);
    sum += seconds;
    longest = std::max(longest, seconds);
  }
  families.push_back(family(metric("workqueue_unfinished_work_seconds"), kQueue, sum));
  families.push_back(
      family(metric("workqueue_longest_running_processor_seconds"), kQueue, longest));
}

void WorkMeter::addJobs(std::vector<Family>& families) const {
  if (jobs_.empty()) return;
  const std::pair<const MetricSpec&, std::uint64_t JobCounts::*> counters[] = {
      {metric("trainyard_jobs_created_total"), &JobCounts::created},
      {metric("trainyard_jobs_succeeded_total"), &JobCounts::succeeded},
      {metric("trainyard_jobs_failed_total"), &JobCounts::failed},
      {metric("trainyard_jobs_deleted_total"), &JobCounts::deleted},
      {metric("trainyard_job_restarts_total"), &JobCounts::restarts}};
  for (const auto& [spec, member] : counters) {
    Family made = makeFamily(spec);
    for (const auto& [ns, counts] : jobs_)
      addMetric(made, {{"job_namespace", ns}}, static_cast<double>(counts.*member));
    families.push_back(std::move(made));
  }
}

}  // namespace trainyard::control
