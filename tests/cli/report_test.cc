#include "cli/report/report.h"

#include <algorithm>
#include <vector>

#include "cli/report/chart.h"
#include "cli/report/compare.h"
#include "cli/report/curves.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Tags close in order and attributes are quoted: "" or what is wrong.
std::string wellFormed(const std::string& html) {
  std::vector<std::string> open;
  for (std::size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at)) {
    const std::size_t end = html.find('>', at);
    if (end == std::string::npos) return "a tag does not end";
    const std::string tag = html.substr(at + 1, end - at - 1);
    at = end;
    if (tag.starts_with('!') || tag.ends_with('/')) continue;
    if (std::count(tag.begin(), tag.end(), '"') % 2 != 0) return "quotes in <" + tag + ">";
    if (tag.find('<') != std::string::npos) return "a < within <" + tag + ">";
    const std::string name = tag.substr(0, tag.find_first_of(" \n"));
    if (!name.starts_with('/')) {
      open.push_back(name);
    } else if (open.empty() || open.back() != name.substr(1)) {
      return "<" + tag + "> closes " + (open.empty() ? "nothing" : open.back());
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? "" : open.back() + " stays open";
}

ReportInput sampleRun() {
  ReportInput input;
  input.job = "fashion <&>";
  input.result.outcome = "succeeded";
  input.result.steps = 700;
  input.result.accuracy = 0.8931;
  input.result.loss = 0.2914;
  input.result.seconds = 76.4;
  for (int step = 1; step <= 700; ++step) {
    input.records.steps.push_back({step, 2.0 / step, 0.001, 2500.0, 0.1 * step, 1.7e9});
  }
  input.records.evaluations = {{200, 0.84, 0.4}, {400, 0.87, 0.3}};
  for (int second = 0; second < 30; ++second) {
    TrafficSample sample;
    sample.time = 1.7e9 + second;
    sample.ps["ps-0"] = {second * 32e6, second * 31e6, second * 32.64e6, second * 31e6};
    sample.ps["ps-1"] = {second * 33e6, second * 30e6};
    input.records.traffic.push_back(sample);
  }
  input.records.events = {
      {"2026-01-31T13:05:09Z", "Warning", "TaskLost", "worker-1: \"<killed>\""}};
  input.facts = {{"model", "mnist_cnn"}, {"cpu", "A & B"}};
  v1::TrainingJob job;
  v1::Training& training = *job.mutable_spec()->mutable_training();
  job.mutable_metadata()->set_name("fashion");
  job.mutable_spec()->mutable_ps()->set_replicas(2);
  job.mutable_spec()->mutable_worker()->set_replicas(2);
  training.mutable_model()->set_name("mnist_cnn");
  training.mutable_placement()->set_strategy("Balanced");
  training.mutable_optimizer()->set_name("RMSProp");
  training.set_batch_size(128);
  auto plan = makePlanReport(job);
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (plan.ok()) input.plan = *std::move(plan);
  return input;
}

// What Balanced cut lies along no axis.
// The sample at a run's end comes at once, with what was counted since the agents' last answers.
TEST(TrafficChart, ASampleThatComesEarlyIsNoBurst) {
  RunRecords records;
  for (const auto& [time, bytes] :
       std::vector<std::pair<double, double>>{{0, 0}, {1, 1e8}, {2, 2e8}, {3, 3e8}, {3.2, 4e8}}) {
    TrafficSample sample;
    sample.time = time;
    sample.ps["ps-0"].received = sample.ps["ps-0"].transmitted = bytes;
    records.traffic.push_back(sample);
  }
  const std::string chart = trafficChart("traffic", records);
  EXPECT_THAT(chart, HasSubstr("100 MB/s"));
  EXPECT_THAT(chart, Not(HasSubstr("200 MB/s")));
}

TEST(ReportTest, PartsOfVariablesAreRangesOfElements) {
  const std::string html = renderReport(sampleRun());
  EXPECT_THAT(html, HasSubstr("<td>fc1_wei</td><td>0 to 1,5"));
  EXPECT_THAT(html, HasSubstr(" of 3,211,264, elements</td><td>ps-0</td>"));
  EXPECT_THAT(html, HasSubstr("<td>conv1_wei</td><td>all</td>"));
}

TEST(ReportTest, WellFormedAndEscaped) {
  const std::string html = renderReport(sampleRun());
  EXPECT_EQ(wellFormed(html), "");
  EXPECT_THAT(html, HasSubstr("fashion &lt;&amp;&gt;"));
  EXPECT_THAT(html, HasSubstr("&quot;&lt;killed&gt;&quot;"));
  EXPECT_THAT(html, HasSubstr("0.8931"));
  EXPECT_THAT(html, HasSubstr("ps-1 out"));
  EXPECT_THAT(html, HasSubstr("<td>ps-1</td>"));
  EXPECT_THAT(html, HasSubstr("(+2.0 %)")) << "ps-0's bytes on the wire";
  EXPECT_THAT(html, HasSubstr("not counted")) << "ps-1's";
  EXPECT_THAT(html, Not(HasSubstr("shared memory")));
}

TEST(ReportTest, WhatIsNotOnTheWireWentThroughSharedMemory) {
  ReportInput input = sampleRun();
  input.records.traffic.back().ps["ps-0"].wire_received = 2e6;
  const std::string html = renderReport(input);
  EXPECT_THAT(html, HasSubstr("<td>2 MB</td>"));
  EXPECT_THAT(html, HasSubstr("through shared memory"));
}

TEST(ReportTest, TablesOfEmbeddingsHaveASection) {
  ReportInput input = sampleRun();
  EXPECT_THAT(renderReport(input), Not(HasSubstr("Embedding tables")));
  parseTraffic(
      "{\"time\": 1700000030, \"ps\": [], \"tables\": [7, {\"table\": \"<user>\", \"rows\": 70000, "
      "\"bytes\": 9000000, \"created\": 70001, \"refused\": 3, \"evicted\": 40, \"pulled\": "
      "120000, "
      "\"pushed\": 119000, \"hotRows\": 0.4321, \"occurrences\": 300000, \"distinct\": 120000}]}\n",
      &input.records);
  const std::string html = renderReport(input);
  EXPECT_EQ(wellFormed(html), "");
  EXPECT_THAT(html, HasSubstr("<h2>Embedding tables</h2>"));
  EXPECT_THAT(html, HasSubstr("<td>&lt;user&gt;</td><td>70,000</td><td>9 MB</td><td>70,001</td>"
                              "<td>3</td><td>40</td><td>120,000</td><td>119,000</td><td>43.2 %</td>"
                              "<td>2.50</td>"));
}

TEST(ReportTest, ARunWithoutParameterServersSpeaksOfNone) {
  ReportInput input = sampleRun();
  input.plan = std::nullopt;
  for (TrafficSample& moment : input.records.traffic) moment.ps.clear();
  const std::string html = renderReport(input);
  EXPECT_EQ(wellFormed(html), "");
  EXPECT_THAT(html, Not(HasSubstr("parameter server")));
  EXPECT_THAT(html, Not(HasSubstr("nothing was recorded")));
}

// Simulated computing has a loss (that of a guess) and, where it evaluates, an accuracy (of class
// 0).
TEST(ReportTest, SimulatedComputingHasNeitherLossNorAccuracy) {
  ReportInput input = sampleRun();
  EXPECT_THAT(renderReport(input), Not(HasSubstr("simulated")));
  input.simulated = true;
  const std::string html = renderReport(input);
  EXPECT_EQ(wellFormed(html), "");
  EXPECT_THAT(html, Not(HasSubstr("<figcaption>Loss</figcaption>")));
  EXPECT_THAT(html, Not(HasSubstr("<figcaption>Accuracy</figcaption>")));
  EXPECT_THAT(html, Not(HasSubstr("0.8931")));
  EXPECT_THAT(html, Not(HasSubstr("0.2914")));
  EXPECT_THAT(html, HasSubstr("<figcaption>Examples per second</figcaption>"));
  EXPECT_THAT(html, HasSubstr("<p class=\"quiet\">The computing was simulated "
                              "(training.model.simulatedStepSeconds): there is no loss and no "
                              "accuracy to show.</p>"));
}

TEST(ReportTest, NothingFromElsewhere) {
  const std::string html = renderReport(sampleRun());
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, Not(HasSubstr("http")));
  EXPECT_THAT(html, Not(HasSubstr("url(")));
}

TEST(ReportTest, ARunThatRecordedNothing) {
  ReportInput input;
  input.job = "empty";
  input.result.outcome = "failed";
  input.result.reason = "worker-0: exit code 3: <no data>";
  const std::string html = renderReport(input);
  EXPECT_EQ(wellFormed(html), "");
  EXPECT_THAT(html, HasSubstr("&lt;no data&gt;"));
  EXPECT_THAT(html, HasSubstr("nothing was recorded"));
  EXPECT_THAT(html, Not(HasSubstr("nan")));
}

TEST(RecordsTest, TheNewestRecordOfAStepCounts) {
  RunRecords records;
  parseMetrics(
      "{\"step\": 1, \"loss\": 3}\n{\"step\": 2, \"loss\": 2}\n{\"step\": 3, \"loss\": 1}\n"
      "{\"step\": 2, \"accuracy\": 0.5}\n{\"step\": 2, \"loss\": 2.5}\n{\"step\": 2, \"accuracy\": "
      "0.6}\n"
      "{\"step\": 3, \"lo",
      &records);
  ASSERT_EQ(records.steps.size(), 2u);
  EXPECT_EQ(records.steps[1].step, 2);
  EXPECT_DOUBLE_EQ(*records.steps[1].loss, 2.5);
  ASSERT_EQ(records.evaluations.size(), 1u);
  EXPECT_DOUBLE_EQ(records.evaluations[0].accuracy, 0.6);
}

TEST(RecordsTest, TrainingRateSpansProcesses) {
  RunRecords records;
  records.steps = {{1, 1.0, 0.1, 50.0, 100, 5},     // of an earlier launch
                   {2, 1.0, 0.1, 100.0, 1, 10},     // 1 s of 100
                   {3, 1.0, 0.1, 200.0, 2, 11},     // 1 s of 200
                   {4, 1.0, 0.1, 400.0, 0.5, 20}};  // a new process: 0.5 s of 400
  EXPECT_DOUBLE_EQ(*trainingRate(records, 9), 500 / 2.5);
  EXPECT_FALSE(trainingRate(records, 30).has_value());
}

TEST(RecordsTest, LinesOfOtherShapesAreLeftOut) {
  RunRecords records;
  parseMetrics("[]\n7\n{\"loss\": 1}\n\n", &records);
  parseTraffic("{\"time\": \"x\"}\n{\"time\": 1, \"ps\": [7, {\"task\": \"ps-0\"}]}\n", &records);
  EXPECT_TRUE(records.steps.empty());
  ASSERT_EQ(records.traffic.size(), 1u);
  EXPECT_EQ(records.traffic[0].ps.size(), 1u);
}

// worker-1 computes twice as long. Of its 30 ms in all-reduce 10 lie in its waiting, of worker-0's
// 30 all but 5.
constexpr char kTimeline[] = R"([
{"ph":"M","pid":0,"tid":0,"name":"process_name","args":{"name":"worker-0"}},
{"ph":"M","pid":0,"tid":1,"name":"thread_name","args":{"name":"steps"}},
{"ph":"X","pid":0,"tid":1,"name":"wait","ts":900000,"dur":50000,"args":{"step":0}},
{"ph":"X","pid":0,"tid":1,"name":"data","ts":1000000,"dur":2000,"args":{"step":0}},
{"ph":"X","pid":0,"tid":2,"name":"bucket 0","ts":1017000,"dur":20000,"args":{"step":0}},
{"ph":"X","pid":0,"tid":1,"name":"compute","ts":1002000,"dur":20000,"args":{"step":0}},
{"ph":"X","pid":0,"tid":2,"name":"bucket 1","ts":1037000,"dur":10000,"args":{"step":0}},
{"ph":"X","pid":0,"tid":1,"name":"wait","ts":1022000,"dur":26000,"args":{"step":0}},
{"ph":"M","pid":1,"tid":0,"name":"process_name","args":{"name":"worker-1"}},
{"ph":"X","pid":1,"tid":1,"name":"compute","ts":1000000,"dur":44000,"args":{"step":0}},
{"ph":"X","pid":1,"tid":2,"name":"bucket 0","ts":1010000,"dur":20000,"args":{"step":0}},
{"ph":"X","pid":1,"tid":2,"name":"bucket 1","ts":1044000,"dur":10000,"args":{"step":0}},
{"ph":"X","pid":1,"tid":1,"name":"wait","ts":1044000,"dur":11000,"args":{"step":0}},
{"ph":"X","pid":2,"tid":1,"name":"wait","ts":1044000,"dur":11000,"args":{"step":0}},
{"ph":"X","pid":1,"tid":1,"name":"wa)";

TEST(RecordsTest, RanksOfATimeline) {
  const std::vector<RankWork> ranks = parseTimeline(kTimeline);
  ASSERT_EQ(ranks.size(), 2u) << "the third has taken no step";
  EXPECT_EQ(ranks[0].name, "worker-1");
  EXPECT_DOUBLE_EQ(ranks[0].busyPerStep(), 0.044);
  EXPECT_NEAR(ranks[0].hidden(), 20.0 / 30, 1e-9);
  EXPECT_EQ(ranks[1].name, "worker-0");
  EXPECT_DOUBLE_EQ(ranks[1].busyPerStep(), 0.022);
  EXPECT_NEAR(ranks[1].hidden(), 5.0 / 30, 1e-9);
  // With parameter servers nothing is all-reduced.
  EXPECT_TRUE(parseTimeline("[\n{\"ph\":\"X\",\"pid\":0,\"tid\":1,\"name\":\"compute\",\"ts\":1,"
                            "\"dur\":1}\n")
                  .empty());
}

TEST(ReportTest, RanksOfAnAllReduceStandSlowestFirst) {
  ReportInput input = sampleRun();
  EXPECT_THAT(renderReport(input), Not(HasSubstr("All-reduce")));
  input.records.ranks = parseTimeline(kTimeline);
  const std::string html = renderReport(input);
  EXPECT_EQ(wellFormed(html), "");
  EXPECT_THAT(html,
              HasSubstr("<tr><td>worker-1</td><td>44 ms</td><td>30 ms</td><td>66.7 %</td></tr>"
                        "\n<tr><td>worker-0</td><td>22 ms</td><td>30 ms</td><td>16.7 %</td>"));
}

TEST(ChartTest, Ticks) {
  EXPECT_THAT(niceTicks(0, 700, 6), ElementsAre(0, 200, 400, 600));
  EXPECT_THAT(niceTicks(-1, 1, 4), ElementsAre(-1, -0.5, 0, 0.5, 1));
  EXPECT_THAT(niceTicks(3, 3, 4), ElementsAre(3));
}

TEST(ChartTest, PeaksDoNotSetTheScale) {
  Chart chart;
  chart.y_text = [](double v) { return std::to_string(static_cast<int>(v)); };
  chart.clip_peaks = true;
  std::vector<std::pair<double, double>> points = {{0, 5000}};
  for (int i = 1; i < 100; ++i) points.emplace_back(i, 10);
  chart.series = {{"", 0, Series::Line::kSolid, {points}}};
  EXPECT_THAT(renderChart(chart), Not(HasSubstr(">2000<")));
  chart.clip_peaks = false;
  EXPECT_THAT(renderChart(chart), HasSubstr(">2000<"));
}

TEST(ChartTest, ThinOutKeepsTheMean) {
  std::vector<std::pair<double, double>> points;
  for (int i = 0; i < 1000; ++i) points.emplace_back(i, i % 2);
  const auto thin = thinOut(points, 100);
  ASSERT_EQ(thin.size(), 100u);
  EXPECT_DOUBLE_EQ(thin[0].second, 0.5);
  EXPECT_EQ(thinOut(points, 1000).size(), 1000u);
}

// result.json says the same.
void expectLine(const RunResult& result, const std::string& line) {
  EXPECT_EQ(resultLine(result), line);
  const auto read = resultFromJson(resultJson(result).dump());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(resultLine(*read), line);
}

TEST(ResultTest, Line) {
  RunResult result;
  result.outcome = "succeeded";
  result.steps = 700;
  result.accuracy = 0.89312;
  result.loss = 0.2914;
  result.examples_per_second = 2510.2;
  result.seconds = 76.41;
  result.dir = "runs/fashion";
  expectLine(result,
             "result: succeeded steps=700 accuracy=0.8931 loss=0.2914 examples_per_second=2510 "
             "seconds=76.4 dir=runs/fashion");
}

TEST(ResultTest, SaysHowClicksWereTold) {
  RunResult result;
  result.outcome = "succeeded";
  result.accuracy = 0.8;
  result.auc = 0.73214;
  result.calibration = 0.992;
  result.dir = "d";
  expectLine(result,
             "result: succeeded accuracy=0.8000 auc=0.7321 calibration=0.9920 seconds=0.0 dir=d");
}

TEST(ResultTest, SaysWhatItsUpdateModeCounts) {
  RunResult result;
  result.outcome = "succeeded";
  result.steps = 100;
  result.skipped = 7;
  result.spread = 4;
  result.partial = 0;
  result.dir = "d";
  expectLine(result, "result: succeeded steps=100 skipped=7 spread=4 partial=0 seconds=0.0 dir=d");
}

TEST(ResultTest, FailedQuotesItsReason) {
  RunResult result;
  result.outcome = "failed";
  result.reason = "TaskFailed: worker-0: \"x\"\nmore";
  result.steps = 0;
  result.dir = "a b";
  EXPECT_EQ(resultLine(result),
            "result: failed reason=\"TaskFailed: worker-0: \\\"x\\\" more\" step=0 seconds=0.0 "
            "dir=\"a b\"");
}

TEST(ResultTest, OfARunThatWasInterruptedAndOfNone) {
  RunResult result;
  result.outcome = "interrupted";
  result.steps = 12;
  result.loss = 0.5;
  result.dir = "d";
  expectLine(result, "result: interrupted step=12 loss=0.5000 seconds=0.0 dir=d");
  EXPECT_FALSE(resultFromJson("{}").ok());
  EXPECT_FALSE(resultFromJson("{").ok());
}

ComparedRun compared(const std::string& name, double step_seconds) {
  ComparedRun run;
  run.name = name;
  run.result.outcome = "succeeded";
  run.result.steps = 11;
  run.result.seconds = 30;
  for (int step : {1, 6, 11}) {
    run.records.steps.push_back(
        {step, 2.5, 0.001, 7.0, 100 + step * step_seconds, 1.7e9 + step * step_seconds});
  }
  for (int second = 0; second < 12; ++second) {
    TrafficSample sample;
    sample.time = 1.7e9 + second;
    sample.ps["ps-0"] = {second * 80e6, second * 40e6, second * 100e6, second * 50e6};
    sample.ps["ps-1"] = {second * 10e6, second * 5e6};
    run.records.traffic.push_back(sample);
  }
  return run;
}

TEST(ComparisonTest, StepAndRatesAreThoseBetweenTheFirstAndTheLastStep) {
  const ComparedRun run = compared("a", 0.8);
  ASSERT_TRUE(measuredStep(run.records).has_value());
  EXPECT_NEAR(*measuredStep(run.records), 0.8, 1e-9);
  const auto rates = serverRates(run.records);  // from second 1 to second 8
  EXPECT_DOUBLE_EQ(rates.at("ps-0").received, 100e6) << "as TCP carried it";
  EXPECT_DOUBLE_EQ(rates.at("ps-0").transmitted, 50e6);
  EXPECT_DOUBLE_EQ(rates.at("ps-1").received, 10e6) << "payload where the kernel does not tell";
  RunRecords shared = run.records;
  for (TrafficSample& sample : shared.traffic) sample.ps["ps-0"].wire_received = 1e3;
  EXPECT_DOUBLE_EQ(serverRates(shared).at("ps-0").received, 80e6) << "through shared memory";

  RunRecords one;
  one.steps = {run.records.steps.front()};
  EXPECT_FALSE(measuredStep(one).has_value());
  EXPECT_TRUE(serverRates(one).empty());
}

TEST(ComparisonTest, ARestartOfTheChiefBeginsAnew) {
  RunRecords records;
  records.steps = {{1, 2.5, 0.1, 7.0, 50, 1.7e9},
                   {6, 2.5, 0.1, 7.0, 90, 1.7e9},
                   {11, 2.5, 0.1, 7.0, 2, 1.7e9},
                   {16, 2.5, 0.1, 7.0, 7, 1.7e9}};
  EXPECT_NEAR(measuredStep(records).value_or(0), 1.0, 1e-9);
}

TEST(ComparisonTest, RunsStandSideBySideAgainstTheModel) {
  std::vector<ComparedRun> runs = {compared("round <robin>", 0.8), compared("balanced", 0.5)};
  runs[0].predicted_step = 0.75;
  const std::string page = renderComparison(runs);
  EXPECT_EQ(wellFormed(page), "");
  EXPECT_THAT(page, HasSubstr("round &lt;robin&gt;"));
  EXPECT_THAT(page, HasSubstr("<td>0.800 s</td><td>0.750 s</td><td>+6.7 %</td>"));
  EXPECT_THAT(page, HasSubstr("<td>0.500 s</td><td>-</td><td>-</td>"));
  EXPECT_THAT(page, HasSubstr("each parameter server: balanced"));
  const std::string text = renderComparisonText(runs);
  EXPECT_THAT(text, HasSubstr("round <robin>  11"));
  EXPECT_THAT(text, HasSubstr("0.800 s            0.750 s  +6.7 %"));
}

TEST(ComparisonTest, SimulatedRunsHaveNeitherLossNorAccuracy) {
  std::vector<ComparedRun> runs = {compared("links", 0.8), compared("learns", 0.5)};
  for (ComparedRun& run : runs) {
    run.result.loss = 2.3026;
    run.result.accuracy = 0.1;
    run.records.evaluations = {{11, 0.1, 2.3026}};
    run.records.traffic.clear();
  }
  runs[0].simulated = true;
  // In text; of the other run the page still has the curves.
  EXPECT_EQ(
      renderComparisonText(runs),
      "run     steps    loss  accuracy  training time  time per step  by the cost model  off\n"
      "links   11          -         -         30.0 s        0.800 s                  -    -\n"
      "learns  11     2.3026    0.1000         30.0 s        0.500 s                  -    -\n"
      "The computing of links was simulated (training.model.simulatedStepSeconds): there is no "
      "loss and no accuracy to show.\n");
  const std::string one = renderComparison(runs);
  EXPECT_EQ(wellFormed(one), "");
  EXPECT_THAT(one, HasSubstr("<figcaption>Loss</figcaption><div class=\"legend\"><span><i "
                             "class=\"key b1\"></i>learns</span></div>"));
  EXPECT_THAT(one, HasSubstr("<figcaption>Accuracy</figcaption>"));

  runs[1].simulated = true;
  const std::string none = renderComparison(runs);
  EXPECT_EQ(wellFormed(none), "");
  EXPECT_THAT(none, Not(HasSubstr("<figcaption>Loss</figcaption>")));
  EXPECT_THAT(none, Not(HasSubstr("<figcaption>Accuracy</figcaption>")));
  EXPECT_THAT(none, HasSubstr("The computing of links, learns was simulated"));
}

TEST(ComparisonTest, AllReduceRunsHaveRanksInPlaceOfServers) {
  ComparedRun run = compared("ring", 0.5);
  run.records.traffic.clear();
  run.records.ranks = parseTimeline(kTimeline);
  EXPECT_THAT(renderComparisonText({run}),
              HasSubstr("\n\n"
                        "run   rank      computing per step  all-reduce per step  of it hidden\n"
                        "ring  worker-1               44 ms                30 ms        66.7 %\n"
                        "ring  worker-0               22 ms                30 ms        16.7 %\n"));
  const std::string page = renderComparison({run});
  EXPECT_EQ(wellFormed(page), "");
  EXPECT_THAT(page, HasSubstr("the slowest rank of each run first"));
  EXPECT_THAT(page, Not(HasSubstr("<h2>Parameter servers</h2>")));
}

TEST(ComparisonTest, ProgramsOfTheUsersOwnHaveServersToo) {
  ComparedRun run = compared("own", 0.8);
  run.result.steps = std::nullopt;
  run.records.steps.clear();
  const auto rates = serverRates(run.records);
  EXPECT_DOUBLE_EQ(rates.at("ps-0").received, 100e6);
  const std::string text = renderComparisonText({run});
  // 150 of 165 MB/s go through ps-0.
  EXPECT_THAT(text, HasSubstr("100 MB/s         50 MB/s            90.9 %"));
  EXPECT_THAT(text, HasSubstr("own  ps-1"));
}

}  // namespace
}  // namespace trainyard::cli
