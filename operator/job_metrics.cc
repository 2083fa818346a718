#include "operator/job_metrics.h"

#include <map>
#include <string>
#include <utility>

#include "base/core/rfc3339.h"
#include "base/http/metrics.h"

namespace trainyard::control {
namespace {

using prometheus::MetricFamily;

// All that `state` of a status can say, and one for jobs that nobody has taken up.
constexpr const char* kStates[] = {"Pending",   "Created",   "Running", "Restarting",
                                   "Suspended", "Succeeded", "Failed"};

MetricLabels labelsOf(const v1::TrainingJob& job) {
  return {{"job_namespace", job.metadata().namespace_()}, {"trainyard_job", job.metadata().name()}};
}

void addReplicas(MetricFamily& replicas, const v1::TrainingJob& job, const std::string& role,
                 const v1::RoleStatus& status) {
  const std::pair<const char*, int> states[] = {{"desired", status.desired()},
                                                {"replicas", status.replicas()},
                                                {"ready", status.ready()},
                                                {"succeeded", status.succeeded()},
                                                {"failed", status.failed()}};
  for (const auto& [state, count] : states) {
    MetricLabels labels = labelsOf(job);
    labels.emplace_back("role", role);
    labels.emplace_back("state", state);
    addMetric(replicas, labels, count);
  }
}

}  // namespace

std::vector<MetricFamily> jobFamilies(const std::vector<v1::TrainingJob>& jobs) {
  std::map<std::string, int> by_state;
  for (const char* state : kStates) by_state[state] = 0;
  MetricFamily conditions = makeFamily(metric("trainyard_job_condition"));
  MetricFamily replicas = makeFamily(metric("trainyard_job_replicas"));
  MetricFamily created = makeFamily(metric("trainyard_job_created_timestamp_seconds"));
  MetricFamily step = makeFamily(metric("trainyard_job_step"));
  MetricFamily restarts = makeFamily(metric("trainyard_job_restarts"));
  MetricFamily disruptions = makeFamily(metric("trainyard_job_disruptions"));
  for (const v1::TrainingJob& job : jobs) {
    const v1::JobStatus& status = job.status();
    ++by_state[status.state().empty() ? "Pending" : status.state()];
    const MetricLabels labels = labelsOf(job);
    for (const v1::Condition& condition : status.conditions()) {
      MetricLabels more = labels;
      more.emplace_back("condition", condition.type());
      more.emplace_back("status", condition.status());
      addMetric(conditions, more, 1);
    }
    addReplicas(replicas, job, "ps", status.ps());
    addReplicas(replicas, job, "worker", status.worker());
    addMetric(created, labels,
              static_cast<double>(parseRfc3339(job.metadata().creation_timestamp())) / 1000);
    if (status.progress().has_step())
      addMetric(step, labels, static_cast<double>(status.progress().step()));
    addMetric(restarts, labels, status.restarts());
    addMetric(disruptions, labels, status.disruptions());
  }
  MetricFamily states = makeFamily(metric("trainyard_jobs"));
  for (const auto& [state, count] : by_state) addMetric(states, {{"state", state}}, count);
  std::vector<MetricFamily> families;
  families.push_back(std::move(states));
  for (MetricFamily* family : {&conditions, &replicas, &created, &step, &restarts, &disruptions}) {
    if (!family->metric.empty()) families.push_back(std::move(*family));
  }
  return families;
}

}  // namespace trainyard::control
