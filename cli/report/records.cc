#include "cli/report/records.h"

#include <algorithm>
#include <functional>
#include <string_view>

#include "base/core/strings.h"
#include "base/process/files.h"
#include "cli/report/json_fields.h"
#include "nlohmann/json.hpp"

namespace trainyard::cli {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 30;

void eachObject(const std::string& text, const std::function<void(const Json&)>& use) {
  for (const std::string_view line : split(text, '\n')) {
    const Json json = Json::parse(line, nullptr, false);
    if (json.is_object()) use(json);
  }
}

template <typename Record>
void dropFrom(std::vector<Record>& records, std::int64_t step) {
  while (!records.empty() && records.back().step >= step) records.pop_back();
}

TableUse tableOf(const Json& json) {
  const auto number = [&](const char* name) {
    return static_cast<std::int64_t>(numberField(json, name).value_or(0));
  };
  return {.name = textField(json, "table"),
          .rows = number("rows"),
          .bytes = number("bytes"),
          .created = number("created"),
          .refused = number("refused"),
          .evicted = number("evicted"),
          .pulled = number("pulled"),
          .pushed = number("pushed"),
          .hot = numberField(json, "hotRows").value_or(0),
          .occurrences = number("occurrences"),
          .distinct = number("distinct")};
}

std::string readOrEmpty(const std::filesystem::path& path) {
  auto content = readFile(path, kMaxFileBytes);
  return content.ok() ? *std::move(content) : std::string();
}

}  // namespace

void parseMetrics(const std::string& content, RunRecords* records) {
  eachObject(content, [&](const Json& json) {
    const auto step_number = numberField(json, "step");
    if (!step_number) return;
    const auto step = static_cast<std::int64_t>(*step_number);
    if (const auto accuracy = numberField(json, "accuracy")) {
      dropFrom(records->evaluations, step);
      records->evaluations.push_back({step, *accuracy, numberField(json, "evaluation_loss"),
                                      numberField(json, "auc"), numberField(json, "calibration")});
      return;
    }
    dropFrom(records->steps, step);
    records->steps.push_back({step, numberField(json, "loss"), numberField(json, "learning_rate"),
                              numberField(json, "examples_per_second"),
                              numberField(json, "train_seconds").value_or(0),
                              numberField(json, "time").value_or(0)});
  });
}

void parseTraffic(const std::string& content, RunRecords* records) {
  eachObject(content, [&](const Json& json) {
    const auto time = numberField(json, "time");
    const auto ps = json.find("ps");
    if (!time || ps == json.end() || !ps->is_array()) return;
    TrafficSample sample;
    sample.time = *time;
    for (const Json& one : *ps) {
      if (!one.is_object()) continue;
      sample.ps[textField(one, "task")] = {numberField(one, "receivedBytes").value_or(0),
                                           numberField(one, "transmittedBytes").value_or(0),
                                           numberField(one, "wireReceivedBytes"),
                                           numberField(one, "wireTransmittedBytes")};
    }
    const auto tables = json.find("tables");
    if (tables != json.end() && tables->is_array()) {
      for (const Json& one : *tables) {
        if (one.is_object()) sample.tables.push_back(tableOf(one));
      }
    }
    records->traffic.push_back(std::move(sample));
  });
}

void parseEvents(const std::string& content, RunRecords* records) {
  eachObject(content, [&](const Json& json) {
    records->events.push_back({textField(json, "time"), textField(json, "type"),
                               textField(json, "reason"), textField(json, "message")});
  });
}

std::optional<double> trainingRate(const RunRecords& records, double since) {
  double examples = 0, seconds = 0, before = 0;
  for (const StepRecord& record : records.steps) {
    if (record.time < since || !record.examples_per_second) continue;
    // A total that fell is that of a new process, which counts from zero.
    const double spent = record.train_seconds - (record.train_seconds < before ? 0 : before);
    before = record.train_seconds;
    examples += *record.examples_per_second * spent;
    seconds += spent;
  }
  if (seconds <= 0) return std::nullopt;
  return examples / seconds;
}

RunRecords readRecords(const std::filesystem::path& dir) {
  RunRecords records;
  parseMetrics(readOrEmpty(dir / "metrics.jsonl"), &records);
  parseTraffic(readOrEmpty(dir / "traffic.jsonl"), &records);
  parseEvents(readOrEmpty(dir / "events.jsonl"), &records);
  records.ranks = parseTimeline(readOrEmpty(dir / "timeline.json"));
  return records;
}

}  // namespace trainyard::cli
