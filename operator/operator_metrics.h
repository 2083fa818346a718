// What the operator's /metrics shows of its work, under the names that dashboards of controllers
// know.
#pragma once

#include <functional>
#include <memory>

#include "operator/controller.h"
#include "prometheus/collectable.h"

namespace trainyard::control {

// controller_runtime_reconcile_total{controller,result},
// workqueue_{depth,adds_total,retries_total}, leader_election_master_status, trainyard_cached_pods.
// Computed at each scrape. What is given is called from the server's threads and outlives the
// result.
struct OperatorView {
  std::function<ReconcileCounts()> counts;
  std::function<std::size_t()> waiting;
  std::function<std::uint64_t()> adds;
  std::function<std::uint64_t()> retries;
  std::function<bool()> leads;
  std::function<std::size_t()> cached_pods;
};
std::shared_ptr<prometheus::Collectable> makeOperatorMetrics(OperatorView view);

}  // namespace trainyard::control
