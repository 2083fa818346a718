// What the operator's /metrics shows of its work, under the names that dashboards of controllers
// know.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "operator/cache/reflector.h"
#include "operator/work_meter.h"
#include "prometheus/collectable.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::control {

// What WorkMeter measures, workqueue_{depth,adds_total,retries_total}, reflector_*{name},
// leader_election_{master_status,slowpath_total}, trainyard_{cached_pods,unreachable_agents}, and
// gauges of jobs (jobFamilies()). Computed at each scrape. What is given is called from the
// server's threads and outlives the result.
struct OperatorView {
  const WorkMeter* work = nullptr;
  int workers = 1;  // reconciles that may run side by side
  std::function<std::vector<v1::TrainingJob>()> jobs;
  std::function<std::size_t()> waiting;
  std::function<std::uint64_t()> adds;
  std::function<std::uint64_t()> retries;
  std::function<bool()> leads;
  std::function<std::uint64_t()> slow_paths;
  std::function<std::size_t()> cached_pods;
  std::function<std::size_t()> unreachable_agents;
  std::function<std::vector<std::pair<std::string, ReflectorCounts>>()> reflectors;
};
std::shared_ptr<prometheus::Collectable> makeOperatorMetrics(OperatorView view);

}  // namespace trainyard::control
