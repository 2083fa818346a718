#include "cli/plan/cost_report.h"

#include <string>

#include "base/core/strings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

runtime::CostInput half(double bits_per_second, double step_seconds) {
  return {0, bits_per_second, step_seconds, runtime::Duplex::kHalf, 0};
}

TEST(CostReport, TextOfOneNumberOfMachines) {
  EXPECT_EQ(renderCostText(makeCostReport("vgg19", 143'667'240, half(10e9, 0.6), 16, {})),
            R"(vgg19: 143,667,240 parameters, 574,668,960 bytes
10 Gbit/s links, half duplex (factor 2), 0.6 s of computing, latency 0 s

machines  workers+ps  T dedicated     %  T colocated     %  T ring     %
      16         8+8        1.519  19.7        2.324  25.8   2.324  25.8

best split of 16 machines  8 workers + 8 ps (50.0 % of workers in theory)

T: seconds of a synchronous step. Dedicated: servers on machines of their own,
in the best split; colocated: every machine is worker and server. %: efficiency,
steps of workers per second against machines that need not communicate.
)");
}

TEST(CostReport, RowsAscendOnceAndOneMachineHasNoServersOfItsOwn) {
  const CostReport report = makeCostReport("", 25'600'000, half(10e9, 0.3), 16, {1, 16, 128});
  ASSERT_EQ(report.rows.size(), 3u);
  EXPECT_FALSE(report.rows[0].dedicated);
  EXPECT_DOUBLE_EQ(report.rows[0].ring.efficiency, 1);
  EXPECT_EQ(report.rows[1].machines, 16);
  EXPECT_EQ(report.rows[1].dedicated->split, (runtime::Split{9, 7}));
  EXPECT_EQ(report.rows[2].machines, 128);
}

TEST(CostReport, FitsEightyColumns) {
  for (const double step : {1e-3, 0.3, 123456.0}) {
    const std::string text = renderCostText(
        makeCostReport("mnist_cnn", 3'274'634, half(2.5e6, step), 777, {1, 2, 65'536}));
    for (const std::string_view line : split(text, '\n')) {
      EXPECT_LE(line.size(), 80u) << line;
      EXPECT_TRUE(line.empty() || line.back() != ' ') << line;
    }
  }
}

TEST(CostReport, JsonHasTheSettingAndEveryRow) {
  const auto json = renderCostJson(makeCostReport("vgg19", 143'667'240, half(10e9, 0.6), 16, {1}));
  EXPECT_EQ(json["duplexFactor"], 2);
  EXPECT_EQ(json["duplex"], "half");
  EXPECT_NEAR(json["exchangeSeconds"].get<double>(), 0.9195, 1e-4);
  EXPECT_DOUBLE_EQ(json["bestWorkerShare"].get<double>(), 0.5);
  EXPECT_TRUE(json["scale"][0]["dedicated"].is_null());
  EXPECT_EQ(json["scale"][1]["dedicated"]["workers"], 8);
  EXPECT_EQ(json["scale"][1]["ring"]["ps"], 0);
  EXPECT_NEAR(json["scale"][1]["ring"]["stepSeconds"].get<double>(), 2.324, 1e-3);
}

TEST(CostReport, RatesAreNamedByTheirMagnitude) {
  const auto text = [](double rate) {
    return renderCostText(makeCostReport("", 1000, half(rate, 1), 2, {}));
  };
  EXPECT_THAT(text(2.5e9), HasSubstr("\n2.5 Gbit/s links,"));
  EXPECT_THAT(text(1e8), HasSubstr("\n100 Mbit/s links,"));
  EXPECT_THAT(text(500), AllOf(HasSubstr("\n500 bit/s links,"), HasSubstr("1 worker + 1 ps")));
}

}  // namespace
}  // namespace trainyard::cli
