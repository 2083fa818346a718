#include "operator/operator_metrics.h"

#include <utility>
#include <vector>

#include "base/http/metrics.h"

namespace trainyard::control {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr const char* kController = "trainingjob";

class OperatorMetrics : public prometheus::Collectable {
 public:
  explicit OperatorMetrics(OperatorView view) : view_(std::move(view)) {}

  std::vector<MetricFamily> Collect() const override {
    std::vector<MetricFamily> families;
    MetricFamily reconciles = makeFamily("controller_runtime_reconcile_total",
                                         "Looks at jobs, by how they ended.", MetricType::Counter);
    const ReconcileCounts counts = view_.counts();
    const std::pair<const char*, std::uint64_t> results[] = {{"success", counts.success},
                                                             {"conflict", counts.conflict},
                                                             {"requeue", counts.retry},
                                                             {"error", counts.permanent}};
    for (const auto& [result, count] : results) {
      addMetric(reconciles, {{"controller", kController}, {"result", result}},
                static_cast<double>(count));
    }
    families.push_back(std::move(reconciles));
    add(families, "workqueue_depth", "Jobs that wait to be looked at.", MetricType::Gauge,
        view_.waiting());
    add(families, "workqueue_adds_total", "Jobs put into the queue.", MetricType::Counter,
        view_.adds());
    add(families, "workqueue_retries_total", "Jobs put back after a failure.", MetricType::Counter,
        view_.retries());
    MetricFamily leads = makeFamily("leader_election_master_status",
                                    "1 while this operator is the leader.", MetricType::Gauge);
    addMetric(leads, {{"name", "trainyard-operator"}}, view_.leads() ? 1 : 0);
    families.push_back(std::move(leads));
    MetricFamily pods =
        makeFamily("trainyard_cached_pods", "Pods in the operator's cache.", MetricType::Gauge);
    addMetric(pods, {}, static_cast<double>(view_.cached_pods()));
    families.push_back(std::move(pods));
    return families;
  }

 private:
  static void add(std::vector<MetricFamily>& families, const char* name, const char* help,
                  MetricType type, std::uint64_t value) {
    MetricFamily family = makeFamily(name, help, type);
    addMetric(family, {{"name", kController}}, static_cast<double>(value));
    families.push_back(std::move(family));
  }

  const OperatorView view_;
};

}  // namespace

std::shared_ptr<prometheus::Collectable> makeOperatorMetrics(OperatorView view) {
  return std::make_shared<OperatorMetrics>(std::move(view));
}

}  // namespace trainyard::control
