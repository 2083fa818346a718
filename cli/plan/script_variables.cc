#include "cli/plan/script_variables.h"

#include <chrono>
#include <mutex>

#include "base/core/strings.h"
#include "base/process/child_process.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "runtime/catalog/catalog.h"

namespace trainyard::cli {
namespace {

constexpr char kField[] = "spec.training.model";
constexpr std::chrono::seconds kLimit{120};  // against a program that hangs

}  // namespace

StatusOr<std::vector<runtime::Variable>> parseVariables(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  std::vector<runtime::Variable> variables = {runtime::globalStep()};
  if (json.is_object() && json.contains("variables") && json["variables"].is_array()) {
    for (const auto& entry : json["variables"]) {
      if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string()) continue;
      runtime::Variable variable;
      variable.name = entry["name"].get<std::string>();
      for (const auto& size : entry.value("shape", nlohmann::json::array())) {
        if (size.is_number_integer()) variable.shape.push_back(size.get<std::int64_t>());
      }
      variables.push_back(std::move(variable));
    }
  }
  if (variables.size() > 1) return variables;
  return absl::InvalidArgumentError(
      fmt::format("expected variables in JSON: {}", text.substr(0, 200)));
}

StatusOr<std::vector<runtime::Variable>> scriptVariables(const std::string& runtime,
                                                         const std::string& path) {
  std::mutex mutex;
  std::string text;
  SpawnOptions spawn;
  spawn.argv = {runtime, "variables", "--model", path};
  spawn.die_with_spawning_thread = true;
  spawn.on_line = [&](std::string_view line) {
    std::lock_guard lock(mutex);
    text.append(line).append("\n");
  };
  StatusOr<ExitState> exit = absl::UnknownError("");
  {
    auto child = ChildProcess::spawn(spawn);
    if (!child.ok()) return invalidInput(kField, std::string(fromAbsl(child.status().message())));
    exit = child->wait(systemClock().now() + kLimit);
  }  // all lines are read
  if (!exit.ok()) return invalidInput(kField, std::string(fromAbsl(exit.status().message())));
  if (*exit == ExitState{}) return parseVariables(text);
  const std::string_view said = trim(text);
  if (exit->signal != 0 || said.empty()) {
    return invalidInput(kField,
                        fmt::format("trainyard-runtime-torch variables: {}", toString(*exit)));
  }
  return absl::InvalidArgumentError(fmt::format("spec.training.{}", said));
}

}  // namespace trainyard::cli
