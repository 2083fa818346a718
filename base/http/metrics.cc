#include "base/http/metrics.h"

#include <limits>
#include <sstream>

#include "prometheus/gauge.h"
#include "prometheus/text_serializer.h"

namespace trainyard {
namespace {

prometheus::MetricType typeOf(MetricKind kind) {
  switch (kind) {
    case MetricKind::kCounter:
      return prometheus::MetricType::Counter;
    case MetricKind::kHistogram:
      return prometheus::MetricType::Histogram;
    case MetricKind::kSummary:
      return prometheus::MetricType::Summary;
    case MetricKind::kGauge:
      break;
  }
  return prometheus::MetricType::Gauge;
}

}  // namespace

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
      .Name(nameOf(metric("trainyard_build_info")))
      .Help(helpOf(metric("trainyard_build_info")))
      .Register(registry)
      .Add({{"version", version}, {"commit", commit}})
      .Set(1);
}

prometheus::MetricFamily makeFamily(const MetricSpec& spec) {
  return {.name = nameOf(spec), .help = helpOf(spec), .type = typeOf(spec.kind), .metric = {}};
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

void addHistogram(prometheus::MetricFamily& family, const MetricLabels& labels,
                  const MetricSpec& spec, std::span<const std::uint64_t> counts, double sum) {
  prometheus::ClientMetric metric;
  for (const auto& [name, text] : labels) metric.label.push_back({.name = name, .value = text});
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i <= spec.buckets.size(); ++i) {
    if (i < counts.size()) seen += counts[i];
    const bool last = i == spec.buckets.size();
    metric.histogram.bucket.push_back(
        {.cumulative_count = seen,
         .upper_bound = last ? std::numeric_limits<double>::infinity() : spec.buckets[i]});
  }
  metric.histogram.sample_count = seen;
  metric.histogram.sample_sum = sum;
  family.metric.push_back(std::move(metric));
}

void addSummary(prometheus::MetricFamily& family, const MetricLabels& labels, std::uint64_t count,
                double sum) {
  prometheus::ClientMetric metric;
  for (const auto& [name, text] : labels) metric.label.push_back({.name = name, .value = text});
  metric.summary.sample_count = count;
  metric.summary.sample_sum = sum;
  family.metric.push_back(std::move(metric));
}

}  // namespace trainyard
