#include "cli/report/report.h"

#include <algorithm>
#include <cmath>

#include "base/core/strings.h"
#include "base/core/units.h"
#include "cli/live/text.h"
#include "cli/report/chart.h"
#include "cli/report/style.h"
#include "fmt/format.h"

namespace trainyard::cli {
namespace {

// A longer silence between two samples is the pause between two launches.
constexpr double kPauseSeconds = 10;
constexpr std::size_t kMostEvents = 100;
constexpr std::size_t kMostParts = 64;
// Readings of a second jump; the mean of so many shows the rate.
constexpr int kSmoothing = 3;

using Points = std::vector<std::pair<double, double>>;

std::string tile(const std::string& name, const std::string& value) {
  return fmt::format("<div class=\"tile\"><b>{}</b><span>{}</span></div>\n", escapeHtml(value),
                     escapeHtml(name));
}

std::string tiles(const ReportInput& input) {
  const RunResult& result = input.result;
  std::string out = "<section class=\"tiles\">\n";
  if (result.accuracy) out += tile("accuracy", formatMeasure(*result.accuracy));
  if (result.loss) out += tile("loss", formatMeasure(*result.loss));
  if (result.steps) out += tile("steps", formatCount(*result.steps));
  if (result.examples_per_second) {
    out += tile("examples per second", formatRate(*result.examples_per_second));
  }
  out += tile("time", formatSeconds(result.seconds));
  if (input.plan) out += tile("parameters", formatCount(input.plan->parameters));
  return out + "</section>\n";
}

std::string chartOf(std::string title, std::function<std::string(double)> y_text, bool from_zero,
                    std::vector<Series> series, std::string x_label = "step") {
  return renderChart({std::move(title), std::move(x_label), std::move(y_text), from_zero, false,
                      std::move(series)});
}

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

std::string lossChart(const RunRecords& records) {
  Points loss, evaluation;
  for (const StepRecord& record : records.steps) {
    if (record.loss) loss.emplace_back(record.step, *record.loss);
  }
  for (const EvaluationRecord& record : records.evaluations) {
    if (record.loss) evaluation.emplace_back(record.step, *record.loss);
  }
  const int radius = std::max(2, static_cast<int>(loss.size() / 60));
  std::vector<Series> series = {{"", 0, Series::Line::kFaint, {loss}},
                                {"training", 0, Series::Line::kSolid, {smooth(loss, radius)}}};
  if (!evaluation.empty()) {
    series.push_back({"evaluation", 1, Series::Line::kDots, {evaluation}});
  }
  Chart chart;
  chart.title = "Loss";
  chart.x_label = "step";
  chart.y_text = [](double v) { return fmt::format("{:g}", v); };
  chart.from_zero = true;
  chart.clip_peaks = true;
  chart.series = std::move(series);
  return renderChart(chart);
}

std::string accuracyChart(const RunRecords& records) {
  Points accuracy;
  for (const EvaluationRecord& record : records.evaluations) {
    accuracy.emplace_back(record.step, record.accuracy);
  }
  return chartOf("Accuracy", [](double v) { return fmt::format("{:.1f} %", v * 100); }, false,
                 {{"", 2, Series::Line::kDots, {accuracy}}});
}

std::string throughputChart(const RunRecords& records) {
  Points rate;
  for (const StepRecord& record : records.steps) {
    if (record.examples_per_second) rate.emplace_back(record.step, *record.examples_per_second);
  }
  return chartOf("Examples per second", [](double v) { return formatCount(std::llround(v)); }, true,
                 {{"", 3, Series::Line::kSolid, {rate}}});
}

// The rates between each two samples, over the seconds in which samples were taken.
struct PsRates {
  std::vector<Points> received, transmitted;
};

std::map<std::string, PsRates> ratesOf(const std::vector<TrafficSample>& samples) {
  std::map<std::string, PsRates> rates;
  double elapsed = 0;
  bool joined = false;
  for (std::size_t i = 1; i < samples.size(); ++i) {
    const double seconds = samples[i].time - samples[i - 1].time;
    if (seconds <= 0 || seconds > kPauseSeconds) {
      joined = false;
      continue;
    }
    elapsed += seconds;
    bool whole = true;
    for (const auto& [name, now] : samples[i].ps) {
      const auto before = samples[i - 1].ps.find(name);
      if (before == samples[i - 1].ps.end() || now.received < before->second.received ||
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

std::string trafficChart(const RunRecords& records) {
  std::vector<Series> series;
  int colour = 0;
  for (auto& [name, ps] : ratesOf(records.traffic)) {
    for (Points& piece : ps.received) piece = smooth(piece, kSmoothing);
    for (Points& piece : ps.transmitted) piece = smooth(piece, kSmoothing);
    series.push_back({name + " in", colour, Series::Line::kSolid, ps.received});
    series.push_back({name + " out", colour, Series::Line::kDashed, ps.transmitted});
    ++colour;
  }
  return chartOf(
      "Bytes per second of each parameter server",
      [](double v) { return v == 0 ? "0" : formatBytes(v) + "/s"; }, true, std::move(series),
      "seconds");
}

std::string row(const std::vector<std::string>& cells, const char* tag = "td") {
  std::string out = "<tr>";
  for (const std::string& cell : cells) {
    out += fmt::format("<{0}>{1}</{0}>", tag, escapeHtml(cell));
  }
  return out + "</tr>\n";
}

std::string partText(const PlanReport& plan, const runtime::Part& part) {
  const runtime::Variable& variable =
      plan.placement.variables[static_cast<std::size_t>(part.variable)];
  const std::int64_t whole =
      variable.shape.empty() ? 1 : variable.shape[static_cast<std::size_t>(part.axis)];
  if (part.begin == 0 && part.end == whole) return variable.name;
  return fmt::format("{} {}..{} of axis {}", variable.name, formatCount(part.begin),
                     formatCount(part.end), part.axis);
}

std::string placementSection(const PlanReport& plan) {
  std::string out = fmt::format(
      "<section class=\"card wide\"><h2>Placement</h2>\n<p>{}: the busiest parameter server holds "
      "{:.1f} % of the bytes (even: {:.1f} %).</p>\n<div class=\"scroll\"><table "
      "class=\"figures\">",
      escapeHtml(plan.strategy), plan.hot_share * 100,
      100.0 / static_cast<double>(std::max<std::size_t>(1, plan.ps.size())));
  out += row({"ps", "bytes", "share", "in per step", "out per step"}, "th");
  for (std::size_t i = 0; i < plan.ps.size(); ++i) {
    const PsPlan& ps = plan.ps[i];
    out +=
        row({fmt::format("ps-{}", i), formatCount(ps.held), fmt::format("{:.1f} %", ps.share * 100),
             formatBytes(static_cast<double>(ps.in_per_step)),
             formatBytes(static_cast<double>(ps.out_per_step))});
  }
  out +=
      "</table></div>\n<details><summary>Every part of every variable</summary>\n"
      "<div class=\"scroll\"><table class=\"figures\">" +
      row({"part", "ps", "bytes"}, "th");
  const std::vector<runtime::Part>& parts = plan.placement.parts;
  for (std::size_t i = 0; i < std::min(parts.size(), kMostParts); ++i) {
    out += row(
        {partText(plan, parts[i]), fmt::format("ps-{}", parts[i].ps), formatCount(parts[i].bytes)});
  }
  out += "</table></div>";
  if (parts.size() > kMostParts) {
    out += fmt::format("<p class=\"quiet\">and {} more</p>", parts.size() - kMostParts);
  }
  return out + "</details></section>\n";
}

// "1.2 GB (+0.3 %)": what TCP carried, and how much more than the payload that is.
std::string wireText(double payload, const std::optional<double>& wire) {
  if (!wire) return "not counted";
  if (payload <= 0) return formatBytes(*wire);
  return fmt::format("{} ({:+.1f} %)", formatBytes(*wire), 100 * (*wire / payload - 1));
}

// The last counters of this launch.
std::string trafficSection(const RunRecords& records) {
  if (records.traffic.empty()) return "";
  std::string out =
      "<section class=\"card wide\"><h2>Bytes of each parameter server since the launch</h2>\n"
      "<div class=\"scroll\"><table class=\"figures\">" +
      row({"ps", "payload in", "on the wire", "payload out", "on the wire"}, "th");
  for (const auto& [name, bytes] : records.traffic.back().ps) {
    out +=
        row({name, formatBytes(bytes.received), wireText(bytes.received, bytes.wire_received),
             formatBytes(bytes.transmitted), wireText(bytes.transmitted, bytes.wire_transmitted)});
  }
  return out + "</table></div></section>\n";
}

// "2026-01-31T13:05:09Z" -> "13:05:09"
std::string clockTime(const std::string& rfc3339) {
  return rfc3339.size() >= 19 ? rfc3339.substr(11, 8) : rfc3339;
}

std::string eventSection(const RunRecords& records) {
  std::string out = "<section class=\"card wide\"><h2>Events</h2>\n";
  if (records.events.empty()) return out + "<p class=\"quiet\">none</p></section>\n";
  const std::size_t left_out =
      records.events.size() > kMostEvents ? records.events.size() - kMostEvents : 0;
  if (left_out > 0) out += fmt::format("<p class=\"quiet\">{} earlier ones left out</p>", left_out);
  out += "<div class=\"scroll\"><table>" + row({"time", "event", ""}, "th");
  for (std::size_t i = left_out; i < records.events.size(); ++i) {
    const EventRecord& event = records.events[i];
    const char* tone = event.type == "Warning" ? " class=\"warn\"" : "";
    out += fmt::format("<tr{}><td title=\"{}\">{}</td><td>{}</td><td>{}</td></tr>\n", tone,
                       escapeHtml(event.time), escapeHtml(clockTime(event.time)),
                       escapeHtml(event.reason), escapeHtml(event.message));
  }
  return out + "</table></div></section>\n";
}

std::string factSection(const ReportInput& input) {
  std::string out = "<section class=\"card wide\"><h2>Job and machine</h2>\n<dl>\n";
  for (const auto& [name, value] : input.facts) {
    out += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escapeHtml(name), escapeHtml(value));
  }
  return out + "</dl></section>\n";
}

}  // namespace

std::string renderReport(const ReportInput& input) {
  const std::string& outcome = input.result.outcome;
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<title>{} - trainyard</title>\n<style>{}</style></head>\n<body><main>\n"
      "<header><h1>{}</h1><span class=\"badge {}\">{}</span><p class=\"quiet\">{}</p></header>\n",
      escapeHtml(input.job), kReportStyle, escapeHtml(input.job), escapeHtml(outcome),
      escapeHtml(outcome), escapeHtml(input.finished));
  if (!input.result.reason.empty()) {
    out += fmt::format("<p class=\"reason\">{}</p>\n", escapeHtml(input.result.reason));
  }
  out += tiles(input);
  out += "<section class=\"charts\">\n" + lossChart(input.records) + accuracyChart(input.records) +
         throughputChart(input.records) + trafficChart(input.records) + "</section>\n" +
         trafficSection(input.records);
  if (input.plan) out += placementSection(*input.plan);
  out += eventSection(input.records) + factSection(input);
  return out + "</main></body></html>\n";
}

}  // namespace trainyard::cli
