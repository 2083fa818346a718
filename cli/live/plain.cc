#include "cli/live/plain.h"

#include <cmath>

#include "base/core/units.h"
#include "cli/live/text.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace trainyard::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string dump(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

// Seconds since 1970 with milliseconds, as in metrics.jsonl.
double unixSeconds(UnixMillis unix_ms) {
  return static_cast<double>(unix_ms) / 1000;
}

template <typename T>
void put(OrderedJson& json, const char* name, const std::optional<T>& value) {
  if (value) json[name] = *value;
}

OrderedJson taskJson(const TaskRow& task) {
  OrderedJson json;
  json["task"] = task.name;
  json["state"] = task.state;
  put(json, "step", task.step);
  put(json, "examplesPerSecond", task.examples_per_second);
  put(json, "receivedBytesPerSecond", task.received_per_second);
  put(json, "transmittedBytesPerSecond", task.transmitted_per_second);
  if (task.restarts > 0) json["restarts"] = task.restarts;
  if (!task.message.empty()) json["message"] = task.message;
  return json;
}

}  // namespace

std::string renderLine(const RunSnapshot& run) {
  if (run.steps == 0 && !run.told) {
    std::string line = run.state.empty() ? "starting" : run.state;
    if (run.foreign && run.restarts > 0) line += fmt::format(", restarts {}", run.restarts);
    if (!run.waiting_for.empty()) line += ", waiting for " + run.waiting_for;
    return line;
  }
  std::string line = run.steps == 0 ? fmt::format("step {}", run.step)
                                    : fmt::format("step {}/{} {:.0f}%", run.step, run.steps,
                                                  std::floor(run.done() * 100));
  if (run.examples_per_second) line += fmt::format(" {:.0f} examples/s", *run.examples_per_second);
  if (run.loss) line += " loss " + formatMeasure(*run.loss);
  if (run.accuracy) line += " accuracy " + formatMeasure(*run.accuracy);
  if (run.eta_seconds) line += " eta " + formatSeconds(*run.eta_seconds);
  if (!run.waiting_for.empty()) line += " waiting for " + run.waiting_for;
  return line;
}

std::string renderJson(const RunSnapshot& run, UnixMillis unix_ms) {
  OrderedJson json;
  json["time"] = unixSeconds(unix_ms);
  json["kind"] = "progress";
  json["job"] = run.job;
  json["state"] = run.state;
  if (run.hasSteps()) json["step"] = run.step;
  if (run.steps > 0) json["steps"] = run.steps;
  put(json, "examplesPerSecond", run.examples_per_second);
  put(json, "loss", run.loss);
  put(json, "accuracy", run.accuracy);
  put(json, "etaSeconds", run.eta_seconds);
  put(json, "checkpointStep", run.checkpoint_step);
  if (run.restarts > 0) json["restarts"] = run.restarts;
  if (!run.waiting_for.empty()) json["waitingFor"] = run.waiting_for;
  json["tasks"] = OrderedJson::array();
  for (const TaskRow& task : run.tasks) json["tasks"].push_back(taskJson(task));
  return dump(json);
}

std::string renderEvent(const RunEvent& event) {
  return event.kind == "warning" ? "warning: " + event.message : event.message;
}

std::string renderEventJson(const RunEvent& event) {
  OrderedJson json;
  json["time"] = unixSeconds(event.unix_ms);
  json["kind"] = event.kind;
  json["message"] = event.message;
  return dump(json);
}

std::string renderTraffic(const RunSnapshot& run, UnixMillis unix_ms) {
  OrderedJson json;
  json["time"] = unixSeconds(unix_ms);
  json["step"] = run.step;
  put(json, "examplesPerSecond", run.examples_per_second);
  json["ps"] = OrderedJson::array();
  for (const TaskRow& task : run.tasks) {
    if (!task.is_ps) continue;
    OrderedJson ps;
    ps["task"] = task.name;
    ps["receivedBytes"] = task.received_bytes;
    ps["transmittedBytes"] = task.transmitted_bytes;
    put(ps, "wireReceivedBytes", task.wire_received_bytes);
    put(ps, "wireTransmittedBytes", task.wire_transmitted_bytes);
    json["ps"].push_back(std::move(ps));
  }
  for (const TableUse& table : run.tables) {
    json["tables"].push_back({{"table", table.name},
                              {"rows", table.rows},
                              {"bytes", table.bytes},
                              {"created", table.created},
                              {"refused", table.refused},
                              {"evicted", table.evicted},
                              {"pulled", table.pulled},
                              {"pushed", table.pushed},
                              {"hotRows", table.hot},
                              {"occurrences", table.occurrences},
                              {"distinct", table.distinct}});
  }
  return dump(json);
}

}  // namespace trainyard::cli
