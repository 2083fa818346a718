#include "cli/run/result.h"

#include "cli/report/json_fields.h"
#include "fmt/format.h"

namespace trainyard::cli {
namespace {

std::string quoted(const std::string& value) {
  if (!value.empty() && value.find_first_of(" \t\n\"\\") == std::string::npos) return value;
  std::string out = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out + "\"";
}

std::optional<std::int64_t> count(const nlohmann::ordered_json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<std::int64_t>();
}

}  // namespace

std::string resultLine(const RunResult& result) {
  std::string line = "result: " + result.outcome;
  if (result.outcome == "failed") line += " reason=" + quoted(result.reason);
  if (result.steps) {
    line += fmt::format(" {}={}", result.outcome == "succeeded" ? "steps" : "step", *result.steps);
  }
  if (result.accuracy) line += fmt::format(" accuracy={:.4f}", *result.accuracy);
  if (result.auc) line += fmt::format(" auc={:.4f}", *result.auc);
  if (result.calibration) line += fmt::format(" calibration={:.4f}", *result.calibration);
  if (result.loss) line += fmt::format(" loss={:.4f}", *result.loss);
  if (result.examples_per_second) {
    line += fmt::format(" examples_per_second={:.0f}", *result.examples_per_second);
  }
  const auto count = [&](const char* name, const std::optional<std::int64_t>& value) {
    if (value) line += fmt::format(" {}={}", name, *value);
  };
  count("skipped", result.skipped);
  count("spread", result.spread);
  count("partial", result.partial);
  return line + fmt::format(" seconds={:.1f} dir={}", result.seconds, quoted(result.dir));
}

nlohmann::ordered_json resultJson(const RunResult& result) {
  nlohmann::ordered_json json;
  json["result"] = result.outcome;
  if (!result.reason.empty()) json["reason"] = result.reason;
  if (result.steps) json["steps"] = *result.steps;
  if (result.accuracy) json["accuracy"] = *result.accuracy;
  if (result.auc) json["auc"] = *result.auc;
  if (result.calibration) json["calibration"] = *result.calibration;
  if (result.loss) json["loss"] = *result.loss;
  if (result.examples_per_second) json["examplesPerSecond"] = *result.examples_per_second;
  if (result.skipped) json["skipped"] = *result.skipped;
  if (result.spread) json["spread"] = *result.spread;
  if (result.partial) json["partial"] = *result.partial;
  json["seconds"] = result.seconds;
  json["dir"] = result.dir;
  return json;
}

StatusOr<RunResult> resultFromJson(const std::string& content) {
  const nlohmann::ordered_json json = nlohmann::ordered_json::parse(content, nullptr, false);
  if (!json.is_object() || !numberField(json, "seconds") || textField(json, "result").empty()) {
    return absl::InvalidArgumentError("is not the result of a run");
  }
  RunResult result;
  result.outcome = textField(json, "result");
  result.reason = textField(json, "reason");
  if (const auto steps = numberField(json, "steps")) {
    result.steps = static_cast<std::int64_t>(*steps);
  }
  result.accuracy = numberField(json, "accuracy");
  result.auc = numberField(json, "auc");
  result.calibration = numberField(json, "calibration");
  result.loss = numberField(json, "loss");
  result.examples_per_second = numberField(json, "examplesPerSecond");
  result.skipped = count(json, "skipped");
  result.spread = count(json, "spread");
  result.partial = count(json, "partial");
  result.seconds = numberField(json, "seconds").value_or(0);
  result.dir = textField(json, "dir");
  return result;
}

}  // namespace trainyard::cli
