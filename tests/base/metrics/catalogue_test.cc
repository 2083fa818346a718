#include "base/metrics/catalogue.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>

#include "base/core/strings.h"
#include "base/http/metrics.h"
#include "base/metrics/bucket_counts.h"
#include "base/process/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/text_serializer.h"
#include "tests/base/metrics/catalogue_text.h"

namespace trainyard {
namespace {

TEST(Catalogue, DocumentIsUpToDate) {
  const std::string path = std::string(std::getenv("TRAINYARD_SOURCE")) + "/docs/metrics.md";
  const StatusOr<std::string> text = readFile(path, 1 << 20);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_TRUE(*text == metricsMarkdown()) << "run bin/print_metrics > docs/metrics.md";
}

TEST(Catalogue, NamesAreUniqueAndFollowPrometheus) {
  std::set<std::string_view> names;
  for (const MetricSpec& spec : kMetrics) {
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
    EXPECT_EQ(spec.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"), std::string_view::npos);
    EXPECT_EQ(spec.name.ends_with("_total"), spec.kind == MetricKind::kCounter) << spec.name;
    EXPECT_EQ(!spec.buckets.empty(), spec.kind == MetricKind::kHistogram) << spec.name;
    EXPECT_TRUE(std::is_sorted(spec.buckets.begin(), spec.buckets.end())) << spec.name;
    EXPECT_TRUE(spec.help.ends_with('.')) << spec.name;
    const bool in_name = spec.unit.empty() || spec.unit == "timestamp" ||
                         spec.name.find(spec.unit) != std::string_view::npos ||
                         spec.name == "trainyard_evaluation_accuracy";
    EXPECT_TRUE(in_name) << spec.name << ": its unit, " << spec.unit << ", is not in its name";
  }
}

// A series of a counter would outlive the job, and there would be ever more of them.
TEST(Catalogue, NoCounterOfTheOperatorNamesAJob) {
  for (const MetricSpec& spec : kMetrics) {
    if (!(spec.exporters & kOperator) || spec.kind == MetricKind::kGauge) continue;
    EXPECT_EQ(spec.labels.find("trainyard_job"), std::string_view::npos) << spec.name;
  }
}

TEST(BucketCounts, BoundsAreInclusive) {
  constexpr double kBounds[] = {1, 2};
  BucketCounts counts(kBounds);
  for (const double value : {0.5, 1.0, 1.5, 2.0, 3.0}) counts.observe(value);
  EXPECT_THAT(counts.counts(), testing::ElementsAre(2, 2, 1));
  EXPECT_EQ(counts.sum(), 8);
}

TEST(Metrics, AHistogramIsCumulative) {
  constexpr const MetricSpec& spec = metric("workqueue_work_duration_seconds");
  prometheus::MetricFamily family = makeFamily(spec);
  const std::uint64_t counts[] = {1, 2};
  addHistogram(family, {{"name", "x"}}, spec, counts, 0.5);
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, {family});
  const std::string text = out.str();
  EXPECT_THAT(text, testing::HasSubstr("# TYPE workqueue_work_duration_seconds histogram"));
  EXPECT_THAT(text, testing::HasSubstr("_bucket{name=\"x\",le=\"1e-07\"} 3"));
  EXPECT_THAT(text, testing::HasSubstr("_bucket{name=\"x\",le=\"+Inf\"} 3"));
  EXPECT_THAT(text, testing::HasSubstr("_count{name=\"x\"} 3"));
  EXPECT_THAT(text, testing::HasSubstr("_sum{name=\"x\"} 0.5"));
}

TEST(Metrics, ASummaryIsACountAndASum) {
  prometheus::MetricFamily family = makeFamily(metric("reflector_items_per_list"));
  addSummary(family, {{"name", "x"}}, 3, 12);
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, {family});
  EXPECT_THAT(out.str(), testing::HasSubstr("# TYPE reflector_items_per_list summary"));
  EXPECT_THAT(out.str(), testing::HasSubstr("_count{name=\"x\"} 3"));
  EXPECT_THAT(out.str(), testing::HasSubstr("_sum{name=\"x\"} 12"));
}

}  // namespace
}  // namespace trainyard
