// --set PATH=VALUE.
#include "fmt/format.h"
#include "operator/job/internal/path.h"
#include "operator/job/internal/validate.h"
#include "operator/job/internal/yaml.h"

namespace trainyard::control::internal {
namespace {

using Json = nlohmann::ordered_json;

// "training.steps" is "spec.training.steps".
StatusOr<std::vector<PathStep>> resolvePath(const std::string& path) {
  TY_ASSIGN_OR_RETURN(std::vector<PathStep> steps, parsePath(path));
  if (steps.front().is_index) return absl::InvalidArgumentError("begins with a list index");
  if (steps.front().key != "spec" && steps.front().key != "metadata") {
    steps.insert(steps.begin(), PathStep{"spec", 0, false});
  }
  return steps;
}

// The member or item; made when it is not there. An item may be added at a list's end.
StatusOr<Json*> descend(Json& value, const PathStep& step) {
  if (step.is_index) {
    if (value.is_null()) value = Json::array();
    if (!value.is_array()) return absl::InvalidArgumentError("is not a list");
    if (step.index > value.size()) {
      return absl::InvalidArgumentError(
          fmt::format("has {} items; index {} is beyond its end", value.size(), step.index));
    }
    if (step.index == value.size()) value.push_back(nullptr);
    return &value[step.index];
  }
  if (value.is_null()) value = Json::object();
  if (!value.is_object()) return absl::InvalidArgumentError("is not a mapping");
  return &value[step.key];
}

}  // namespace

void applyOverride(const std::string& path, const std::string& value, Json& document,
                   Locations& locations, std::vector<JobProblem>* problems) {
  const std::string label = fmt::format("--set {}={}", path, value);
  const auto steps = resolvePath(path);
  if (!steps.ok()) {
    problems->push_back({label, 0, "", std::string(steps.status().message())});
    return;
  }
  YamlDocument parsed;
  parsed.value = nullptr;
  std::vector<JobProblem> wrong;
  // An empty value takes the field away.
  const bool empty = value.find_first_not_of(" \t") == std::string::npos || value == "null";
  if (!empty && !readYaml(value, label, &parsed, &wrong)) {
    problems->push_back({label, 0, formatPath(*steps), wrong.front().message});
    return;
  }
  Json* target = &document;
  std::vector<PathStep> walked;
  for (const PathStep& step : *steps) {
    const auto next = descend(*target, step);
    if (!next.ok()) {
      problems->push_back({label, 0, formatPath(walked), std::string(next.status().message())});
      return;
    }
    target = *next;
    walked.push_back(step);
    const std::string here = formatPath(walked);
    if (target->is_null()) locations.set(here, {label, 0});
  }
  *target = std::move(parsed.value);
  locations.set(formatPath(*steps), {label, 0});
}

}  // namespace trainyard::control::internal
