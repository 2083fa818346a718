#include "cli/report/curves.h"

#include <algorithm>
#include <map>

#include "base/core/units.h"
#include "cli/live/text.h"
#include "cli/report/chart.h"
#include "fmt/format.h"

namespace trainyard::cli {
namespace {

// A longer silence between two samples is the pause between two launches.
constexpr double kPauseSeconds = 10;
// Readings of a second jump; the mean of so many shows the rate.
constexpr int kSmoothing = 3;
// Counters are as old as the last answer of their agent, which is asked each half second: what came
// within less, as with the sample at a run's end, is of a longer time than lies between the two.
constexpr double kShortestSpanSeconds = 0.5;

// The rates between each two samples, over the seconds in which samples were taken.
struct PsRates {
  std::vector<Points> received, transmitted;
};

std::map<std::string, PsRates> ratesOf(const std::vector<TrafficSample>& samples) {
  std::map<std::string, PsRates> rates;
  double elapsed = 0;
  bool joined = false;
  std::size_t last = 0;
  for (std::size_t i = 1; i < samples.size(); ++i) {
    const double seconds = samples[i].time - samples[last].time;
    if (seconds >= 0 && seconds < kShortestSpanSeconds) continue;
    const std::map<std::string, PsBytes>& earlier = samples[last].ps;
    last = i;
    if (seconds < 0 || seconds > kPauseSeconds) {
      joined = false;
      continue;
    }
    elapsed += seconds;
    bool whole = true;
    for (const auto& [name, now] : samples[i].ps) {
      const auto before = earlier.find(name);
      if (before == earlier.end() || now.received < before->second.received ||
          now.transmitted < before->second.transmitted) {
        whole = false;
        continue;
      }
      PsRates& ps = rates[name];
      if (!joined || ps.received.empty()) {
        ps.received.emplace_back();
        ps.transmitted.emplace_back();
      }
      ps.received.back().emplace_back(elapsed, (now.received - before->second.received) / seconds);
      ps.transmitted.back().emplace_back(elapsed,
                                         (now.transmitted - before->second.transmitted) / seconds);
    }
    joined = whole;
  }
  return rates;
}

}  // namespace

Points smooth(const Points& points, int radius) {
  Points result;
  const int n = static_cast<int>(points.size());
  for (int i = 0; i < n; ++i) {
    double sum = 0;
    const int from = std::max(0, i - radius), to = std::min(n - 1, i + radius);
    for (int k = from; k <= to; ++k) sum += points[static_cast<std::size_t>(k)].second;
    result.emplace_back(points[static_cast<std::size_t>(i)].first, sum / (to - from + 1));
  }
  return result;
}

int lossRadius(std::size_t points) {
  return std::max(2, static_cast<int>(points / 60));
}

Points lossPoints(const RunRecords& records) {
  Points points;
  for (const StepRecord& record : records.steps) {
    if (record.loss) points.emplace_back(record.step, *record.loss);
  }
  return points;
}

Points aucPoints(const RunRecords& records) {
  Points points;
  for (const EvaluationRecord& record : records.evaluations) {
    if (record.auc) points.emplace_back(record.step, *record.auc);
  }
  return points;
}

Points accuracyPoints(const RunRecords& records) {
  Points points;
  for (const EvaluationRecord& record : records.evaluations) {
    points.emplace_back(record.step, record.accuracy);
  }
  return points;
}

std::string trafficChart(std::string title, const RunRecords& records) {
  if (!records.traffic.empty() && records.traffic.back().ps.empty()) return "";
  Chart chart;
  chart.title = std::move(title);
  chart.x_label = "seconds";
  chart.y_text = [](double v) { return v == 0 ? "0" : formatBytes(v) + "/s"; };
  chart.from_zero = true;
  int colour = 0;
  for (auto& [name, ps] : ratesOf(records.traffic)) {
    for (Points& piece : ps.received) piece = smooth(piece, kSmoothing);
    for (Points& piece : ps.transmitted) piece = smooth(piece, kSmoothing);
    chart.series.push_back({name + " in", colour, Series::Line::kSolid, ps.received});
    chart.series.push_back({name + " out", colour, Series::Line::kDashed, ps.transmitted});
    ++colour;
  }
  return renderChart(chart);
}

std::vector<std::string> rankTitles() {
  return {"rank", "computing per step", "all-reduce per step", "of it hidden"};
}

std::vector<std::string> rankCells(const RankWork& rank) {
  return {rank.name, formatSeconds(rank.busyPerStep()),
          formatSeconds(rank.reduce_seconds / static_cast<double>(rank.steps)),
          fmt::format("{:.1f} %", 100 * rank.hidden())};
}

std::string simulatedNote(const std::vector<std::string>& runs) {
  std::string of;
  for (const std::string& run : runs) of += (of.empty() ? " of " : ", ") + run;
  return fmt::format(
      "The computing{} was simulated (training.model.simulatedStepSeconds): there is no loss and "
      "no accuracy to show.",
      of);
}

std::string quietLine(const std::string& text) {
  return fmt::format("<p class=\"quiet\">{}</p>\n", escapeHtml(text));
}

std::string tableRow(const std::vector<std::string>& cells, const char* tag) {
  std::string out = "<tr>";
  for (const std::string& cell : cells) {
    out += fmt::format("<{0}>{1}</{0}>", tag, escapeHtml(cell));
  }
  return out + "</tr>\n";
}

}  // namespace trainyard::cli
