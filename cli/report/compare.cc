#include "cli/report/compare.h"

#include <algorithm>

#include "base/core/units.h"
#include "cli/live/text.h"
#include "cli/plan/text_table.h"
#include "cli/report/chart.h"
#include "cli/report/curves.h"
#include "cli/report/style.h"
#include "fmt/format.h"

namespace trainyard::cli {
namespace {

constexpr char kNone[] = "-";

// The records of the chief's last process, whose train_seconds grow.
std::vector<StepRecord> lastProcess(const RunRecords& records) {
  std::size_t begin = 0;
  for (std::size_t i = 1; i < records.steps.size(); ++i) {
    if (records.steps[i].train_seconds < records.steps[i - 1].train_seconds) begin = i;
  }
  return {records.steps.begin() + static_cast<std::ptrdiff_t>(begin), records.steps.end()};
}

std::string curveChart(std::string title, const std::vector<ComparedRun>& runs, bool loss) {
  Chart chart;
  chart.title = std::move(title);
  chart.x_label = "step";
  chart.from_zero = loss;
  chart.clip_peaks = loss;
  chart.y_text = [loss](double v) {
    return loss ? fmt::format("{:g}", v) : fmt::format("{:.1f} %", v * 100);
  };
  int colour = 0;
  for (const ComparedRun& run : runs) {
    Points points = loss ? lossPoints(run.records) : accuracyPoints(run.records);
    if (loss) points = smooth(points, lossRadius(points.size()));
    if (!points.empty() && !run.simulated) {
      chart.series.push_back(
          {run.name, colour, loss ? Series::Line::kSolid : Series::Line::kDots, {points}});
    }
    ++colour;
  }
  return renderChart(chart);
}

std::string seconds(const std::optional<double>& value) {
  return value ? fmt::format("{:.3f} s", *value) : kNone;
}

std::string learnt(const ComparedRun& run, const std::optional<double>& value) {
  return value && !run.simulated ? formatMeasure(*value) : kNone;
}

// "" where all runs computed.
std::string noteOnSimulated(const std::vector<ComparedRun>& runs) {
  std::vector<std::string> names;
  for (const ComparedRun& run : runs) {
    if (run.simulated) names.push_back(run.name);
  }
  return names.empty() ? "" : simulatedNote(names);
}

// Loss and accuracy of the runs that have them; "" where all computing was simulated.
std::string learningCharts(const std::vector<ComparedRun>& runs) {
  const bool any =
      std::any_of(runs.begin(), runs.end(), [](const ComparedRun& run) { return !run.simulated; });
  return any ? curveChart("Loss", runs, true) + curveChart("Accuracy", runs, false) : "";
}

std::string offText(const std::optional<double>& measured, const std::optional<double>& predicted) {
  if (!measured || !predicted || *predicted <= 0) return kNone;
  return fmt::format("{:+.1f} %", 100 * (*measured / *predicted - 1));
}

const TableRow kStepTitles = {
    "run", "steps", "loss", "accuracy", "training time", "time per step", "by the cost model",
    "off"};

std::vector<TableRow> stepRows(const std::vector<ComparedRun>& runs) {
  std::vector<TableRow> rows;
  for (const ComparedRun& run : runs) {
    const auto step = measuredStep(run.records);
    const RunResult& result = run.result;
    rows.push_back({run.name, result.steps ? formatCount(*result.steps) : kNone,
                    learnt(run, result.loss), learnt(run, result.accuracy),
                    formatSeconds(result.seconds), seconds(step), seconds(run.predicted_step),
                    offText(step, run.predicted_step)});
  }
  return rows;
}

const TableRow kServerTitles = {"run",
                                "ps",
                                "bytes held",
                                "share held",
                                "in per step",
                                "in per second",
                                "out per second",
                                "share of traffic"};

// A row for each server that the plan or the traffic knows.
std::vector<TableRow> serverRows(const std::vector<ComparedRun>& runs) {
  std::vector<TableRow> rows;
  for (const ComparedRun& run : runs) {
    const auto rates = serverRates(run.records);
    std::size_t servers = run.plan ? run.plan->ps.size() : 0;
    double sum = 0;
    for (const auto& [name, rate] : rates) {
      sum += rate.received + rate.transmitted;
      if (name.starts_with("ps-")) ++servers;
    }
    if (run.plan) servers = run.plan->ps.size();
    for (std::size_t i = 0; i < servers; ++i) {
      const std::string name = fmt::format("ps-{}", i);
      TableRow row = {run.name, name, kNone, kNone, kNone, kNone, kNone, kNone};
      if (run.plan) {
        const PsPlan& ps = run.plan->ps[i];
        row[2] = formatCount(ps.held);
        row[3] = fmt::format("{:.1f} %", ps.share * 100);
        row[4] = formatBytes(static_cast<double>(ps.in_per_step));
      }
      if (const auto rate = rates.find(name); rate != rates.end()) {
        const ServerRate& bytes = rate->second;
        row[5] = formatBytes(bytes.received) + "/s";
        row[6] = formatBytes(bytes.transmitted) + "/s";
        if (sum > 0)
          row[7] = fmt::format("{:.1f} %", 100 * (bytes.received + bytes.transmitted) / sum);
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

// `cells` behind the run's name.
TableRow ofRun(std::string name, TableRow cells) {
  cells.insert(cells.begin(), std::move(name));
  return cells;
}

std::vector<TableRow> rankRows(const std::vector<ComparedRun>& runs) {
  std::vector<TableRow> rows;
  for (const ComparedRun& run : runs) {
    for (const RankWork& rank : run.records.ranks) rows.push_back(ofRun(run.name, rankCells(rank)));
  }
  return rows;
}

std::string htmlTable(const char* title, const TableRow& titles,
                      const std::vector<TableRow>& rows) {
  std::string out = fmt::format(
      "<section class=\"card wide\"><h2>{}</h2>\n<div class=\"scroll\"><table "
      "class=\"figures\">",
      title);
  out += tableRow(titles, "th");
  for (const TableRow& row : rows) out += tableRow(row);
  return out + "</table></div></section>\n";
}

std::string textTable(const TableRow& titles, std::vector<TableRow> rows) {
  rows.insert(rows.begin(), titles);
  std::vector<bool> right(titles.size(), true);
  right[0] = right[1] = false;
  return renderTable(rows, right);
}

}  // namespace

std::optional<double> measuredStep(const RunRecords& records) {
  const std::vector<StepRecord> steps = lastProcess(records);
  if (steps.size() < 2) return std::nullopt;
  const StepRecord &first = steps.front(), &last = steps.back();
  return (last.train_seconds - first.train_seconds) / static_cast<double>(last.step - first.step);
}

std::map<std::string, ServerRate> serverRates(const RunRecords& records) {
  const std::vector<StepRecord> steps = lastProcess(records);
  const TrafficSample* first = nullptr;
  const TrafficSample* last = nullptr;
  for (const TrafficSample& sample : records.traffic) {
    // A program of the user's own records no steps.
    if (!steps.empty() && (sample.time < steps.front().time || sample.time > steps.back().time))
      continue;
    if (first == nullptr) first = &sample;
    last = &sample;
  }
  std::map<std::string, ServerRate> rates;
  if (first == last) return rates;
  const double spent = last->time - first->time;
  for (const auto& [name, now] : last->ps) {
    const auto before = first->ps.find(name);
    if (before == first->ps.end() || spent <= 0) continue;
    const PsBytes& then = before->second;
    rates[name] = {(now.allReceived() - then.allReceived()) / spent,
                   (now.allTransmitted() - then.allTransmitted()) / spent};
  }
  return rates;
}

std::string renderComparison(const std::vector<ComparedRun>& runs) {
  std::string title;
  for (const ComparedRun& run : runs) title += (title.empty() ? "" : ", ") + run.name;
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<title>{0} - trainyard</title>\n<style>{1}</style></head>\n<body><main>\n"
      "<header><h1>{0}</h1></header>\n",
      escapeHtml(title), kReportStyle);
  out += htmlTable("Runs", kStepTitles, stepRows(runs));
  if (const std::string note = noteOnSimulated(runs); !note.empty()) out += quietLine(note);
  out += "<section class=\"charts wide\">\n" + learningCharts(runs);
  for (const ComparedRun& run : runs) {
    out += trafficChart("Bytes per second of each parameter server: " + run.name, run.records);
  }
  out += "</section>\n";
  if (const auto rows = serverRows(runs); !rows.empty())
    out += htmlTable("Parameter servers", kServerTitles, rows);
  if (const auto rows = rankRows(runs); !rows.empty())
    out += htmlTable("All-reduce: the slowest rank of each run first", ofRun("run", rankTitles()),
                     rows);
  return out + "</main></body></html>\n";
}

std::string renderComparisonText(const std::vector<ComparedRun>& runs) {
  std::string note = noteOnSimulated(runs);
  if (!note.empty()) note += "\n";
  std::string out = textTable(kStepTitles, stepRows(runs)) + note;
  if (const auto rows = serverRows(runs); !rows.empty())
    out += "\n" + textTable(kServerTitles, rows);
  if (const auto rows = rankRows(runs); !rows.empty())
    out += "\n" + textTable(ofRun("run", rankTitles()), rows);
  return out;
}

}  // namespace trainyard::cli
