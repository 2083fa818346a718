#include "cli/plan/script_variables.h"

#include <chrono>
#include <filesystem>

#include "base/core/strings.h"
#include "base/process/run_to_end.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "runtime/catalog/catalog.h"

namespace trainyard::cli {
namespace {

constexpr std::chrono::seconds kLimit{120};  // against a program that hangs

// What errors begin with: the program's own words, and those about it.
struct Prefixes {
  std::string said;
  std::string failed;
};

// What `runtime variables FLAG PATH` prints.
StatusOr<std::string> askRuntime(const std::string& runtime, const std::string& flag,
                                 const std::string& path, const Prefixes& prefixes) {
  const auto failed = [&](std::string_view why) {
    return absl::InvalidArgumentError(prefixes.failed + std::string(why));
  };
  std::string text;
  SpawnOptions spawn;
  spawn.argv = {runtime, "variables", flag, path};
  spawn.die_with_spawning_thread = true;
  spawn.on_line = [&text](std::string_view line) { text.append(line).append("\n"); };
  const StatusOr<ExitState> exit = runToEnd(spawn, kLimit);
  if (!exit.ok()) return failed(fromAbsl(exit.status().message()));
  if (*exit == ExitState{}) return text;
  const std::string_view said = trim(text);
  if (exit->signal == 0 && !said.empty())
    return absl::InvalidArgumentError(prefixes.said + std::string(said));
  const std::string program = std::filesystem::path(runtime).filename().string();
  return failed(fmt::format("{} variables: {}", program, toString(*exit)));
}

}  // namespace

StatusOr<std::vector<runtime::Variable>> parseVariables(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  std::vector<runtime::Variable> variables = {runtime::globalStep()};
  if (json.is_object() && json.contains("variables") && json["variables"].is_array()) {
    for (const auto& entry : json["variables"]) {
      if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string()) continue;
      if (entry.value("trained", nlohmann::json(true)) == false) continue;
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
  TY_ASSIGN_OR_RETURN(const std::string text,
                      askRuntime(runtime, "--model", path,
                                 {.said = "spec.training.", .failed = "spec.training.model: "}));
  return parseVariables(text);
}

StatusOr<std::vector<runtime::Variable>> recordedVariables(const std::string& runtime,
                                                           const std::string& path) {
  std::error_code unknown;
  const bool is_run = std::filesystem::is_directory(path, unknown);
  TY_ASSIGN_OR_RETURN(
      const std::string text,
      askRuntime(runtime, "--declared", is_run ? path + "/checkpoints/model.safetensors" : path,
                 {.said = "--declared: ", .failed = "--declared: "}));
  return parseVariables(text);
}

}  // namespace trainyard::cli
