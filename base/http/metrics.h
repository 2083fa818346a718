// What /metrics shows: a registry, the process's own numbers, and families computed at each scrape.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/core/status.h"
#include "base/http/http_server.h"
#include "base/metrics/catalogue.h"
#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"
#include "prometheus/registry.h"

namespace trainyard {

// One page per endpoint: a family that two sources export would appear twice, which scrapers
// refuse. add() before serving; render() is thread-safe as far as the sources are.
class MetricsPage {
 public:
  MetricsPage();
  prometheus::Registry& registry() { return *registry_; }
  void add(std::shared_ptr<prometheus::Collectable> source) {
    sources_.push_back(std::move(source));
  }
  // In the text format 0.0.4.
  HttpReply render() const;

 private:
  std::shared_ptr<prometheus::Registry> registry_;
  std::vector<std::shared_ptr<prometheus::Collectable>> sources_;
};

// process_cpu_seconds_total, process_resident_memory_bytes, process_virtual_memory_bytes,
// process_open_fds, process_max_fds, process_start_time_seconds, process_threads; of this process,
// from /proc. Stateless and thread-safe.
std::shared_ptr<prometheus::Collectable> makeProcessMetrics();

// trainyard_build_info{version,commit} 1
void addBuildInfo(prometheus::Registry& registry, const std::string& version,
                  const std::string& commit);

// A family of the catalogue (metric("...")), to be filled metric by metric.
using MetricLabels = std::vector<std::pair<std::string, std::string>>;
prometheus::MetricFamily makeFamily(const MetricSpec& spec);
// `value` becomes that of the family's type (counter or gauge).
void addMetric(prometheus::MetricFamily& family, const MetricLabels& labels, double value);
// A histogram with the bounds of `spec`; `counts` has one number for each and one for the rest, not
// cumulative; fewer numbers are zeros.
void addHistogram(prometheus::MetricFamily& family, const MetricLabels& labels,
                  const MetricSpec& spec, std::span<const std::uint64_t> counts, double sum);
// A summary of `count` values; it has no quantiles.
void addSummary(prometheus::MetricFamily& family, const MetricLabels& labels, std::uint64_t count,
                double sum);
// Of counters, gauges and histograms that the library itself keeps.
inline std::string nameOf(const MetricSpec& spec) {
  return std::string(spec.name);
}
inline std::string helpOf(const MetricSpec& spec) {
  return std::string(spec.help);
}

}  // namespace trainyard
