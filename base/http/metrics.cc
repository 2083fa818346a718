#include "base/http/metrics.h"

#include <sstream>

#include "prometheus/gauge.h"
#include "prometheus/text_serializer.h"

namespace trainyard {

MetricsPage::MetricsPage() : registry_(std::make_shared<prometheus::Registry>()) {}

HttpReply MetricsPage::render() const {
  std::vector<prometheus::MetricFamily> families = registry_->Collect();
  for (const auto& source : sources_) {
    for (prometheus::MetricFamily& family : source->Collect())
      families.push_back(std::move(family));
  }
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families);
  return {.code = 200,
          .content_type = "text/plain; version=0.0.4; charset=utf-8",
          .body = std::move(out).str()};
}

void addBuildInfo(prometheus::Registry& registry, const std::string& version,
                  const std::string& commit) {
  prometheus::BuildGauge()
      .Name("trainyard_build_info")
      .Help("Version of this program; always 1.")
      .Register(registry)
      .Add({{"version", version}, {"commit", commit}})
      .Set(1);
}

prometheus::MetricFamily makeFamily(const std::string& name, const std::string& help,
                                    prometheus::MetricType type) {
  return {.name = name, .help = help, .type = type, .metric = {}};
}

void addMetric(prometheus::MetricFamily& family, const MetricLabels& labels, double value) {
  prometheus::ClientMetric metric;
  for (const auto& [name, text] : labels) metric.label.push_back({.name = name, .value = text});
  if (family.type == prometheus::MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  family.metric.push_back(std::move(metric));
}

}  // namespace trainyard
