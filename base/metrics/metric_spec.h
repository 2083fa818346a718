// What is known of a metric beforehand: the row of the catalogue (base/metrics/catalogue.h).
#pragma once

#include <span>
#include <string_view>

namespace trainyard {

// A summary of ours has no quantiles: a count and a sum.
enum class MetricKind { kCounter, kGauge, kHistogram, kSummary };

// Who exports it. kPs and kWorker are the agents of the built-in runtime's tasks, kRing those of
// workers of strategy AllReduce (beside what is kWorker's), kForeign those of
// users' own programs.
enum MetricExporter : unsigned {
  kReserved = 0,  // nobody yet: the name is kept for a later version
  kOperator = 1,
  kPs = 2,
  kWorker = 4,
  kForeign = 8,
  kRing = 16,
  kTasks = kPs | kWorker | kForeign,
};

struct MetricSpec {
  std::string_view name;
  MetricKind kind = MetricKind::kGauge;
  std::string_view unit;    // base unit; "" for a number of things, "ratio", or a date: "timestamp"
  std::string_view labels;  // "controller,result"; those of a task carry kTaskLabels beside them
  unsigned exporters = kReserved;
  std::string_view help;
  // Upper bounds of a histogram's buckets, +Inf not among them.
  std::span<const double> buckets = {};
  std::string_view when = {};  // "" always; else the condition, in words
};

// Who a task is; `trainyard_job` and not `job`, which is Prometheus' own.
inline constexpr std::string_view kTaskLabels = "trainyard_job,role,index";

}  // namespace trainyard
