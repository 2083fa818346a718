#include "operator/job/template.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string_view>

#include "absl/strings/cord.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "operator/job/internal/path.h"

namespace trainyard::control {
namespace {

constexpr absl::string_view kCommandMissingUrl = "trainyard.dev/command-missing";
constexpr const char* kMissing =
    "missing: it says which program the tasks run (a job without spec.training, or with model "
    "program)";

using Json = nlohmann::ordered_json;
using internal::childPath;

constexpr std::string_view kSetByUs[] = {
    "PS_HOSTS",   "WORKER_HOSTS",     "TF_CONFIG",   "RANK",       "WORLD_SIZE",
    "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};

Status addWords(const Json& container, const std::string& path, std::string_view field,
                std::vector<std::string>* words) {
  const auto found = container.find(std::string(field));
  if (found == container.end()) return absl::OkStatus();
  const std::string place = childPath(path, field);
  if (!found->is_array()) return invalidInput(place, "expected a list of texts");
  for (std::size_t i = 0; i < found->size(); ++i) {
    if (!(*found)[i].is_string()) {
      return invalidInput(childPath(place, i), "expected a text (put it in quotes)");
    }
    words->push_back((*found)[i].get<std::string>());
  }
  return absl::OkStatus();
}

Status addVariable(const Json& entry, const std::string& path, TaskCommand* command) {
  const Json given = entry.is_object() ? entry.value("name", Json()) : Json();
  const std::string name = given.is_string() ? given.get<std::string>() : "";
  if (name.empty() || name.find('=') != std::string::npos) {
    return invalidInput(childPath(path, "name"), "expected the name of a variable");
  }
  if (isSetByUs(name)) {
    return invalidInput(childPath(path, "name"), fmt::format("{} is set by Trainyard", name));
  }
  if (entry.contains("valueFrom")) {
    command->ignored.push_back(childPath(path, "valueFrom"));
    return absl::OkStatus();
  }
  const auto value = entry.find("value");
  if (value != entry.end() && !value->is_string()) {
    return invalidInput(childPath(path, "value"), "expected a text (put it in quotes)");
  }
  command->env.emplace_back(name, value == entry.end() ? "" : value->get<std::string>());
  return absl::OkStatus();
}

// Of the container at `path`.
Status commandMissing(const std::string& path) {
  Status status = invalidInput(childPath(path, "command"), kMissing);
  status.SetPayload(kCommandMissingUrl, absl::Cord("1"));
  return status;
}

Status readContainer(const Json& container, const std::string& path, TaskCommand* command) {
  if (!container.is_object()) return invalidInput(path, "expected a container");
  TY_RETURN_IF_ERROR(addWords(container, path, "command", &command->argv));
  if (command->argv.empty() || command->argv.front().empty()) {
    return commandMissing(path);
  }
  TY_RETURN_IF_ERROR(addWords(container, path, "args", &command->argv));
  const Json env = container.value("env", Json::array());
  if (!env.is_array()) return invalidInput(childPath(path, "env"), "expected a list");
  for (std::size_t i = 0; i < env.size(); ++i) {
    TY_RETURN_IF_ERROR(addVariable(env[i], childPath(childPath(path, "env"), i), command));
  }
  const Json dir = container.value("workingDir", Json(""));
  if (!dir.is_string()) return invalidInput(childPath(path, "workingDir"), "expected a path");
  command->working_dir = dir.get<std::string>();
  for (const auto& [name, value] : container.items()) {
    if (name != "name" && name != "command" && name != "args" && name != "env" &&
        name != "workingDir") {
      command->ignored.push_back(childPath(path, name));
    }
  }
  return absl::OkStatus();
}

// Whatever a template holds beside the task's container.
void ignoreTheRest(const Json& pod, const std::string& path, std::size_t task,
                   TaskCommand* command) {
  for (const auto& [name, value] : pod.items()) {
    if (name != "spec") command->ignored.push_back(childPath(path, name));
  }
  const std::string spec = childPath(path, "spec");
  for (const auto& [name, value] : pod["spec"].items()) {
    if (name != "containers") command->ignored.push_back(childPath(spec, name));
  }
  for (std::size_t i = 0; i < pod["spec"]["containers"].size(); ++i) {
    if (i != task) command->ignored.push_back(childPath(childPath(spec, "containers"), i));
  }
}

}  // namespace

bool isSetByUs(std::string_view name) {
  // Where the Python package finds libtrainyard is the user's to say.
  if (name == "TRAINYARD_LIBRARY") return false;
  return name.starts_with("TRAINYARD_") ||
         std::find(std::begin(kSetByUs), std::end(kSetByUs), name) != std::end(kSetByUs);
}

std::string templatePath(v1::Role role) {
  return role == v1::ROLE_PS ? "spec.ps.template" : "spec.worker.template";
}

const std::string& templateText(const v1::TrainingJob& job, v1::Role role) {
  return role == v1::ROLE_PS ? job.spec().ps().template_() : job.spec().worker().template_();
}

std::optional<std::size_t> taskContainer(const Json& pod) {
  const Json none;
  const Json spec = pod.is_object() ? pod.value("spec", none) : none;
  const Json containers = spec.is_object() ? spec.value("containers", none) : none;
  if (!containers.is_array() || containers.empty()) return std::nullopt;
  for (std::size_t i = 0; i < containers.size(); ++i) {
    const Json& container = containers[i];
    if (container.is_object() && container.value("name", none) == "task") return i;
  }
  return 0;
}

StatusOr<TaskCommand> taskCommand(const v1::TrainingJob& job, v1::Role role) {
  const std::string path = templatePath(role);
  const Json pod = Json::parse(templateText(job, role), nullptr, /*allow_exceptions=*/false);
  const std::string containers = childPath(childPath(path, "spec"), "containers");
  const auto task = taskContainer(pod);
  if (!task) {
    return commandMissing(childPath(containers, std::size_t{0}));
  }
  TaskCommand command;
  TY_RETURN_IF_ERROR(
      readContainer(pod["spec"]["containers"][*task], childPath(containers, *task), &command));
  ignoreTheRest(pod, path, *task, &command);
  const int claims = role == v1::ROLE_PS ? job.spec().ps().volume_claim_templates_size()
                                         : job.spec().worker().volume_claim_templates_size();
  if (claims > 0)
    command.ignored.push_back(
        fmt::format("spec.{}.volumeClaimTemplates", role == v1::ROLE_PS ? "ps" : "worker"));
  return command;
}

bool isCommandMissing(const Status& status) {
  return status.GetPayload(kCommandMissingUrl).has_value();
}

Status resolveWorkingDirs(const std::string& cwd, v1::TrainingJob* job) {
  for (const v1::Role role : {v1::ROLE_PS, v1::ROLE_WORKER}) {
    if ((role == v1::ROLE_PS && !job->spec().has_ps()) || !namesProgram(*job, role)) continue;
    TY_ASSIGN_OR_RETURN(const TaskCommand command, taskCommand(*job, role));
    Json pod = Json::parse(templateText(*job, role), nullptr, /*allow_exceptions=*/false);
    const std::filesystem::path dir = std::filesystem::path(cwd) / command.working_dir;
    pod["spec"]["containers"][*taskContainer(pod)]["workingDir"] = dir.lexically_normal().string();
    std::string* text = role == v1::ROLE_PS
                            ? job->mutable_spec()->mutable_ps()->mutable_template_()
                            : job->mutable_spec()->mutable_worker()->mutable_template_();
    *text = pod.dump();
  }
  return absl::OkStatus();
}

}  // namespace trainyard::control
