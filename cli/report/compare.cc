#include "cli/report/compare.h"

#include "base/core/units.h"
#include "cli/live/text.h"
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
    if (!points.empty()) {
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

std::string offText(const std::optional<double>& measured, const std::optional<double>& predicted) {
  if (!measured || !predicted || *predicted <= 0) return kNone;
  return fmt::format("{:+.1f} %", 100 * (*measured / *predicted - 1));
}

std::string stepTable(const std::vector<ComparedRun>& runs) {
  std::string out =
      "<section class=\"card wide\"><h2>Runs</h2>\n<div class=\"scroll\"><table "
      "class=\"figures\">" +
      tableRow({"run", "steps", "loss", "accuracy", "training time", "time per step",
                "by the cost model", "off"},
               "th");
  for (const ComparedRun& run : runs) {
    const auto step = measuredStep(run.records);
    const RunResult& result = run.result;
    out += tableRow({run.name, result.steps ? formatCount(*result.steps) : kNone,
                     result.loss ? formatMeasure(*result.loss) : kNone,
                     result.accuracy ? formatMeasure(*result.accuracy) : kNone,
                     formatSeconds(result.seconds), seconds(step), seconds(run.predicted_step),
                     offText(step, run.predicted_step)});
  }
  return out + "</table></div></section>\n";
}

std::string serverTable(const std::vector<ComparedRun>& runs) {
  std::string out =
      "<section class=\"card wide\"><h2>Parameter servers</h2>\n<div class=\"scroll\"><table "
      "class=\"figures\">" +
      tableRow(
          {"run", "ps", "bytes held", "share", "in per step", "in per second", "out per second"},
          "th");
  for (const ComparedRun& run : runs) {
    const auto rates = serverRates(run.records);
    const std::size_t servers = run.plan ? run.plan->ps.size() : 0;
    for (std::size_t i = 0; i < servers; ++i) {
      const PsPlan& ps = run.plan->ps[i];
      const std::string name = fmt::format("ps-{}", i);
      const auto rate = rates.find(name);
      const auto perSecond = [&](double bytes) {
        return rate == rates.end() ? std::string(kNone) : formatBytes(bytes) + "/s";
      };
      const ServerRate bytes = rate == rates.end() ? ServerRate{} : rate->second;
      out +=
          tableRow({run.name, name, formatCount(ps.held), fmt::format("{:.1f} %", ps.share * 100),
                    formatBytes(static_cast<double>(ps.in_per_step)), perSecond(bytes.received),
                    perSecond(bytes.transmitted)});
    }
  }
  return out + "</table></div></section>\n";
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
  if (steps.empty()) return {};
  const TrafficSample* first = nullptr;
  const TrafficSample* last = nullptr;
  for (const TrafficSample& sample : records.traffic) {
    if (sample.time < steps.front().time || sample.time > steps.back().time) continue;
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
    const auto in = [](const PsBytes& b) { return b.wire_received.value_or(b.received); };
    const auto out = [](const PsBytes& b) { return b.wire_transmitted.value_or(b.transmitted); };
    rates[name] = {(in(now)-in(then)) / spent, (out(now) - out(then)) / spent};
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
  out += stepTable(runs) + "<section class=\"charts wide\">\n" + curveChart("Loss", runs, true) +
         curveChart("Accuracy", runs, false);
  for (const ComparedRun& run : runs) {
    out += trafficChart("Bytes per second of each parameter server: " + run.name, run.records);
  }
  return out + "</section>\n" + serverTable(runs) + "</main></body></html>\n";
}

}  // namespace trainyard::cli
