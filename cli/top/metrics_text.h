// Reading what /metrics of a task says.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "operator/cluster/cluster.h"

namespace trainyard::cli {

struct MetricSample {
  std::string name;
  std::map<std::string, std::string> labels;
  double value = 0;
};
// The samples of a page in Prometheus' text format 0.0.4. What is no sample is left out. Pure.
std::vector<MetricSample> parseMetricsText(std::string_view text);

// One task at one moment. Counters grow from the start of its agent.
struct TaskReading {
  bool ready = false;
  double restarts = 0;
  std::optional<double> step;
  std::optional<double> target_steps;
  std::optional<double> examples;      // workers
  std::optional<double> steps;         // workers: completed
  std::optional<double> busy_seconds;  // workers: reading data and computing
  std::optional<double> wait_seconds;  // workers: waiting for parameter servers
  // Of all peers: bytes on the wire or payload, whichever are more.
  std::optional<double> received;
  std::optional<double> transmitted;
  // Workers of an all-reduce job: what all-reduce sent, the time that it took, and the part of that
  // time for which the worker waited, its backward pass being over.
  std::optional<double> all_reduce_sent;
  std::optional<double> all_reduce_seconds;
  std::optional<double> all_reduce_waited;
  // Servers of embedding tables: rows given to workers, and of these what goes to busy ids.
  std::optional<double> rows_pulled;
  std::optional<double> hot_rows_pulled;
  std::optional<double> loss;  // coordinator's task: of the job
  std::optional<double> accuracy;
  std::optional<double> checkpoint_seconds;  // when the newest was committed, Unix time
  std::optional<double> lost_steps;
};
TaskReading readTaskPage(std::string_view text);

// Task and its page; a task that did not answer is missing.
using TaskPages = std::map<control::TaskKey, std::string>;

}  // namespace trainyard::cli
