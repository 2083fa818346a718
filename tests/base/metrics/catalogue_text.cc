#include "tests/base/metrics/catalogue_text.h"

#include <utility>
#include <vector>

#include "base/core/strings.h"
#include "base/metrics/catalogue.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace trainyard {
namespace {

constexpr std::pair<MetricExporter, const char*> kExporters[] = {{kOperator, "operator"},
                                                                 {kPs, "ps"},
                                                                 {kWorker, "worker"},
                                                                 {kForeign, "foreign"},
                                                                 {kRing, "all-reduce"}};

constexpr char kHead[] =
    R"(# Metrics

What the operator and the agents of tasks show at `/metrics`, in Prometheus' text format. This page is made from
`base/metrics/catalogue.h`, from which the programs themselves take names, types and buckets; a test compares what
they export with it. To make it anew: `build/dev/bin/print_metrics > docs/metrics.md`.

- Every metric of a task carries `trainyard_job`, `role` (`ps` or `worker`) and `index` beside the labels below;
  namespace and pod come from the scrape: [monitoring.md](monitoring.md). Metrics of the operator that speak of
  jobs have `job_namespace` and, gauges only, `trainyard_job`: they end with the job.
- Counters begin at zero with the program that exports them. An agent adds up over the lives of its program: a
  restart in place does not set them back.
- *Exported by*: the `operator`; agents of the built-in runtime's `ps` and `worker`; agents of workers of strategy
  AllReduce (`all-reduce`), beside what is a worker's; agents of `foreign` programs, which are users' own.
- Rates (examples per second, bytes per second) are computed by who reads: `rate(trainyard_worker_examples_total[1m])`.
)";

const char* typeName(MetricKind kind) {
  switch (kind) {
    case MetricKind::kCounter:
      return "counter";
    case MetricKind::kHistogram:
      return "histogram";
    case MetricKind::kSummary:
      return "summary";
    case MetricKind::kGauge:
      break;
  }
  return "gauge";
}

std::vector<std::string> exportersOf(const MetricSpec& spec) {
  std::vector<std::string> names;
  for (const auto& [bit, name] : kExporters) {
    if (spec.exporters & bit) names.emplace_back(name);
  }
  return names;
}

std::string joined(const std::vector<std::string>& parts) {
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string labelsText(const MetricSpec& spec) {
  if (spec.labels.empty()) return "";
  std::vector<std::string> names;
  for (const auto part : split(spec.labels, ',')) names.push_back(fmt::format("`{}`", part));
  return joined(names);
}

std::string row(const MetricSpec& spec) {
  std::string text = std::string(spec.help);
  if (!spec.when.empty()) text += fmt::format(" *{}*", spec.when);
  if (!spec.buckets.empty())
    text += fmt::format(" Buckets: {}.", fmt::join(spec.buckets.begin(), spec.buckets.end(), " "));
  const bool reserved = spec.exporters == kReserved;
  return fmt::format("| `{}` | {} | {} | {} | {}{} |\n", spec.name, typeName(spec.kind), spec.unit,
                     labelsText(spec), reserved ? "" : joined(exportersOf(spec)) + " | ", text);
}

std::string table(const char* title, bool reserved, bool (*belongs)(const MetricSpec&)) {
  std::string text = fmt::format("\n## {}\n\n", title);
  text += reserved ? "| name | type | unit | labels | what |\n|--|--|--|--|--|\n"
                   : "| name | type | unit | labels | exported by | what |\n|--|--|--|--|--|--|\n";
  for (const MetricSpec& spec : kMetrics) {
    if (belongs(spec)) text += row(spec);
  }
  return text;
}

}  // namespace

std::string metricsMarkdown() {
  const auto isCommon = [](const MetricSpec& s) {
    return (s.exporters & kOperator) && (s.exporters & kTasks);
  };
  const auto isOperator = [](const MetricSpec& s) { return s.exporters == kOperator; };
  const auto isTask = [](const MetricSpec& s) {
    return s.exporters != kReserved && !(s.exporters & kOperator);
  };
  const auto isReserved = [](const MetricSpec& s) { return s.exporters == kReserved; };
  return std::string(kHead) + table("Tasks", false, isTask) +
         table("The operator", false, isOperator) + table("Every program", false, isCommon) +
         table("Names kept for later versions", true, isReserved);
}

std::string metricsJson() {
  auto all = nlohmann::ordered_json::array();
  for (const MetricSpec& spec : kMetrics) {
    nlohmann::ordered_json json;
    json["name"] = spec.name;
    json["type"] = typeName(spec.kind);
    json["unit"] = spec.unit;
    json["labels"] = nlohmann::ordered_json::array();
    if (!spec.labels.empty()) {
      for (const auto part : split(spec.labels, ',')) json["labels"].push_back(std::string(part));
    }
    json["exporters"] = exportersOf(spec);
    json["help"] = spec.help;
    json["when"] = spec.when;
    json["buckets"] = std::vector<double>(spec.buckets.begin(), spec.buckets.end());
    all.push_back(std::move(json));
  }
  return all.dump(1) + "\n";
}

}  // namespace trainyard
