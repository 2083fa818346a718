#include "cli/report/records.h"

#include <algorithm>
#include <functional>
#include <string_view>

#include "base/core/strings.h"
#include "base/process/files.h"
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

std::optional<double> number(const Json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::string text(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

template <typename Record>
void dropFrom(std::vector<Record>& records, std::int64_t step) {
  while (!records.empty() && records.back().step >= step) records.pop_back();
}

std::string readOrEmpty(const std::filesystem::path& path) {
  auto content = readFile(path, kMaxFileBytes);
  return content.ok() ? *std::move(content) : std::string();
}

}  // namespace

void parseMetrics(const std::string& content, RunRecords* records) {
  eachObject(content, [&](const Json& json) {
    const auto step_number = number(json, "step");
    if (!step_number) return;
    const auto step = static_cast<std::int64_t>(*step_number);
    if (const auto accuracy = number(json, "accuracy")) {
      dropFrom(records->evaluations, step);
      records->evaluations.push_back({step, *accuracy, number(json, "evaluation_loss")});
      return;
    }
    dropFrom(records->steps, step);
    records->steps.push_back({step, number(json, "loss"), number(json, "learning_rate"),
                              number(json, "examples_per_second"),
                              number(json, "train_seconds").value_or(0),
                              number(json, "time").value_or(0)});
  });
}

void parseTraffic(const std::string& content, RunRecords* records) {
  eachObject(content, [&](const Json& json) {
    const auto time = number(json, "time");
    const auto ps = json.find("ps");
    if (!time || ps == json.end() || !ps->is_array()) return;
    TrafficSample sample;
    sample.time = *time;
    for (const Json& one : *ps) {
      if (!one.is_object()) continue;
      sample.ps[text(one, "task")] = {
          number(one, "receivedBytes").value_or(0), number(one, "transmittedBytes").value_or(0),
          number(one, "wireReceivedBytes"), number(one, "wireTransmittedBytes")};
    }
    records->traffic.push_back(std::move(sample));
  });
}

void parseEvents(const std::string& content, RunRecords* records) {
  eachObject(content, [&](const Json& json) {
    records->events.push_back(
        {text(json, "time"), text(json, "type"), text(json, "reason"), text(json, "message")});
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
  return records;
}

}  // namespace trainyard::cli
