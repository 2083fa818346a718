#include "cli/report/report.h"

#include <algorithm>
#include <cmath>

#include "base/core/strings.h"
#include "base/core/units.h"
#include "cli/live/text.h"
#include "cli/report/chart.h"
#include "cli/report/curves.h"
#include "cli/report/style.h"
#include "fmt/format.h"
#include "runtime/placement/placement_table.h"

namespace trainyard::cli {
namespace {

constexpr std::size_t kMostEvents = 100;
constexpr std::size_t kMostParts = 64;

std::string tile(const std::string& name, const std::string& value) {
  return fmt::format("<div class=\"tile\"><b>{}</b><span>{}</span></div>\n", escapeHtml(value),
                     escapeHtml(name));
}

std::string tiles(const ReportInput& input) {
  const RunResult& result = input.result;
  std::string out = "<section class=\"tiles\">\n";
  if (result.accuracy && !input.simulated) out += tile("accuracy", formatMeasure(*result.accuracy));
  if (result.loss && !input.simulated) out += tile("loss", formatMeasure(*result.loss));
  if (result.steps) out += tile("steps", formatCount(*result.steps));
  if (result.examples_per_second) {
    out += tile("examples per second", formatRate(*result.examples_per_second));
  }
  out += tile("time", formatSeconds(result.seconds));
  if (input.plan) out += tile("parameters", formatCount(input.plan->parameters));
  return out + "</section>\n";
}

std::string chartOf(std::string title, std::function<std::string(double)> y_text, bool from_zero,
                    std::vector<Series> series) {
  return renderChart(
      {std::move(title), "step", std::move(y_text), from_zero, false, std::move(series)});
}

std::string lossChart(const RunRecords& records) {
  const Points loss = lossPoints(records);
  Points evaluation;
  for (const EvaluationRecord& record : records.evaluations) {
    if (record.loss) evaluation.emplace_back(record.step, *record.loss);
  }
  std::vector<Series> series = {
      {"", 0, Series::Line::kFaint, {loss}},
      {"training", 0, Series::Line::kSolid, {smooth(loss, lossRadius(loss.size()))}}};
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

// Of models that tell clicks; others have none.
std::string aucChart(const RunRecords& records) {
  const Points points = aucPoints(records);
  if (points.empty()) return "";
  return chartOf("AUC", [](double v) { return fmt::format("{:.3f}", v); }, false,
                 {{"", 3, Series::Line::kDots, {points}}});
}

std::string accuracyChart(const RunRecords& records) {
  return chartOf("Accuracy", [](double v) { return fmt::format("{:.1f} %", v * 100); }, false,
                 {{"", 2, Series::Line::kDots, {accuracyPoints(records)}}});
}

std::string throughputChart(const RunRecords& records) {
  Points rate;
  for (const StepRecord& record : records.steps) {
    if (record.examples_per_second) rate.emplace_back(record.step, *record.examples_per_second);
  }
  return chartOf("Examples per second", [](double v) { return formatCount(std::llround(v)); }, true,
                 {{"", 3, Series::Line::kSolid, {rate}}});
}

std::string placementSection(const PlanReport& plan) {
  std::string out = fmt::format(
      "<section class=\"card wide\"><h2>Placement</h2>\n<p>{}: the busiest parameter server holds "
      "{:.1f} % of the bytes (even: {:.1f} %).</p>\n<div class=\"scroll\"><table "
      "class=\"figures\">",
      escapeHtml(plan.strategy), plan.hot_share * 100,
      100.0 / static_cast<double>(std::max<std::size_t>(1, plan.ps.size())));
  out += tableRow({"ps", "bytes", "share", "in per step", "out per step"}, "th");
  for (std::size_t i = 0; i < plan.ps.size(); ++i) {
    const PsPlan& ps = plan.ps[i];
    out += tableRow({fmt::format("ps-{}", i), formatCount(ps.held),
                     fmt::format("{:.1f} %", ps.share * 100),
                     formatBytes(static_cast<double>(ps.in_per_step)),
                     formatBytes(static_cast<double>(ps.out_per_step))});
  }
  out +=
      "</table></div>\n<details><summary>Every part of every variable</summary>\n"
      "<div class=\"scroll\"><table class=\"figures\">" +
      tableRow({"variable", "part", "ps", "bytes"}, "th");
  const std::vector<runtime::Part>& parts = plan.placement.parts;
  for (std::size_t i = 0; i < std::min(parts.size(), kMostParts); ++i) {
    const runtime::Variable& variable =
        plan.placement.variables[static_cast<std::size_t>(parts[i].variable)];
    out += tableRow({variable.name, runtime::rangeText(variable, parts[i]),
                     fmt::format("ps-{}", parts[i].ps), formatCount(parts[i].bytes)});
  }
  out += "</table></div>";
  if (parts.size() > kMostParts) {
    out += fmt::format("<p class=\"quiet\">and {} more</p>", parts.size() - kMostParts);
  }
  return out + "</details></section>\n";
}

// The wire carries all payload, some bytes before they are acknowledged aside.
bool inSharedMemory(double payload, const std::optional<double>& wire) {
  return wire && *wire < 0.9 * payload;
}

// "1.2 GB (+0.3 %)": what TCP carried, and how much more than the payload that is.
std::string wireText(double payload, const std::optional<double>& wire) {
  if (!wire) return "not counted";
  if (payload <= 0 || inSharedMemory(payload, wire)) return formatBytes(*wire);
  return fmt::format("{} ({:+.1f} %)", formatBytes(*wire), 100 * (*wire / payload - 1));
}

// The last counters of this launch.
std::string trafficSection(const RunRecords& records) {
  if (records.traffic.empty() || records.traffic.back().ps.empty()) return "";
  std::string out =
      "<section class=\"card wide\"><h2>Bytes of each parameter server since the launch</h2>\n"
      "<div class=\"scroll\"><table class=\"figures\">" +
      tableRow({"ps", "payload in", "on the wire", "payload out", "on the wire"}, "th");
  bool shared = false;
  for (const auto& [name, bytes] : records.traffic.back().ps) {
    out += tableRow({name, formatBytes(bytes.received),
                     wireText(bytes.received, bytes.wire_received), formatBytes(bytes.transmitted),
                     wireText(bytes.transmitted, bytes.wire_transmitted)});
    shared = shared || inSharedMemory(bytes.received, bytes.wire_received) ||
             inSharedMemory(bytes.transmitted, bytes.wire_transmitted);
  }
  out += "</table></div>";
  if (shared)
    out += "<p class=\"quiet note\">What is not on the wire went through shared memory.</p>";
  return out + "</section>\n";
}

// Of a job with embedding tables: what its servers held at the end of this launch.
std::string tableSection(const RunRecords& records) {
  if (records.traffic.empty() || records.traffic.back().tables.empty()) return "";
  std::string out =
      "<section class=\"card wide\"><h2>Embedding tables</h2>\n"
      "<div class=\"scroll\"><table class=\"figures\">" +
      tableRow({"table", "rows", "memory", "created", "refused", "evicted", "pulled", "pushed",
                "hot rows", "lookups a row"},
               "th");
  for (const TableUse& table : records.traffic.back().tables) {
    const double lookups = static_cast<double>(table.occurrences) /
                           static_cast<double>(std::max<std::int64_t>(1, table.distinct));
    out += tableRow({table.name, formatCount(table.rows),
                     formatBytes(static_cast<double>(table.bytes)), formatCount(table.created),
                     formatCount(table.refused), formatCount(table.evicted),
                     formatCount(table.pulled), formatCount(table.pushed),
                     fmt::format("{:.1f} %", 100 * table.hot), fmt::format("{:.2f}", lookups)});
  }
  return out +
         "</table></div>\n<p class=\"quiet note\">Hot rows: of those pulled, at least so many go "
         "to "
         "1,024 ids of each server. A row that a worker asks for serves so many lookups of its "
         "step.</p></section>\n";
}

// Of a job without parameter servers, where its timeline was kept.
std::string rankSection(const RunRecords& records) {
  if (records.ranks.empty()) return "";
  std::string out =
      "<section class=\"card wide\"><h2>All-reduce: the slowest rank first</h2>\n"
      "<div class=\"scroll\"><table class=\"figures\">" +
      tableRow(rankTitles(), "th");
  for (const RankWork& rank : records.ranks) out += tableRow(rankCells(rank));
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
  out += "<div class=\"scroll\"><table>" + tableRow({"time", "event", ""}, "th");
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
  if (input.simulated) out += quietLine(simulatedNote({}));
  out += "<section class=\"charts\">\n";
  if (!input.simulated) {
    out += lossChart(input.records) + accuracyChart(input.records) + aucChart(input.records);
  }
  out += throughputChart(input.records) +
         trafficChart("Bytes per second of each parameter server", input.records) + "</section>\n" +
         trafficSection(input.records) + tableSection(input.records) + rankSection(input.records);
  if (input.plan) out += placementSection(*input.plan);
  out += eventSection(input.records) + factSection(input);
  return out + "</main></body></html>\n";
}

}  // namespace trainyard::cli
