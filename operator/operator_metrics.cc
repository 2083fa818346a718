#include "operator/operator_metrics.h"

#include <utility>
#include <vector>

#include "base/http/metrics.h"
#include "operator/job_metrics.h"

namespace trainyard::control {
namespace {

using prometheus::MetricFamily;

constexpr const char* kControllerName = "trainingjob";

class OperatorMetrics : public prometheus::Collectable {
 public:
  explicit OperatorMetrics(OperatorView view) : view_(std::move(view)) {}

  std::vector<MetricFamily> Collect() const override {
    std::vector<MetricFamily> families = view_.work->collect(view_.workers);
    const MetricLabels queue = {{"name", kControllerName}, {"controller", kControllerName}};
    const MetricLabels lease = {{"name", "trainyard-operator"}};
    add(families, metric("workqueue_depth"), queue, view_.waiting());
    add(families, metric("workqueue_adds_total"), queue, view_.adds());
    add(families, metric("workqueue_retries_total"), queue, view_.retries());
    addReflectors(families);
    add(families, metric("leader_election_master_status"), lease, view_.leads() ? 1 : 0);
    add(families, metric("leader_election_slowpath_total"), lease, view_.slow_paths());
    add(families, metric("trainyard_cached_pods"), {}, view_.cached_pods());
    add(families, metric("trainyard_unreachable_agents"), {}, view_.unreachable_agents());
    for (MetricFamily& family : jobFamilies(view_.jobs())) families.push_back(std::move(family));
    return families;
  }

 private:
  void addReflectors(std::vector<MetricFamily>& families) const {
    const auto reflectors = view_.reflectors();
    const auto family = [&](const MetricSpec& spec, auto value) {
      MetricFamily made = makeFamily(spec);
      for (const auto& [name, counts] : reflectors)
        addMetric(made, {{"name", name}}, static_cast<double>(value(counts)));
      families.push_back(std::move(made));
    };
    const auto summary = [&](const MetricSpec& spec, auto sum) {
      MetricFamily made = makeFamily(spec);
      for (const auto& [name, counts] : reflectors)
        addSummary(made, {{"name", name}}, counts.lists, static_cast<double>(sum(counts)));
      families.push_back(std::move(made));
    };
    using Counts = const ReflectorCounts&;
    family(metric("reflector_lists_total"), [](Counts c) { return c.lists; });
    summary(metric("reflector_items_per_list"), [](Counts c) { return c.items; });
    summary(metric("reflector_list_duration_seconds"), [](Counts c) { return c.list_seconds; });
    family(metric("reflector_watches_total"), [](Counts c) { return c.watches; });
    family(metric("reflector_short_watches_total"), [](Counts c) { return c.short_watches; });
    family(metric("reflector_events_total"), [](Counts c) { return c.events; });
    family(metric("reflector_failures_total"), [](Counts c) { return c.failures; });
    family(metric("reflector_last_resource_version"), [](Counts c) { return c.last_version; });
  }

  static void add(std::vector<MetricFamily>& families, const MetricSpec& spec,
                  const MetricLabels& labels, std::uint64_t value) {
    MetricFamily family = makeFamily(spec);
    addMetric(family, labels, static_cast<double>(value));
    families.push_back(std::move(family));
  }

  const OperatorView view_;
};

}  // namespace

std::shared_ptr<prometheus::Collectable> makeOperatorMetrics(OperatorView view) {
  return std::make_shared<OperatorMetrics>(std::move(view));
}

}  // namespace trainyard::control
