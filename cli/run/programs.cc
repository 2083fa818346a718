#include "cli/run/programs.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "base/core/strings.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "operator/cluster/cluster.h"
#include "operator/job/job.h"
#include "operator/job/template.h"

namespace trainyard::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxName = 48;
constexpr char kPlain[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./:,@%+$()";

bool isInterpreter(const std::string& program) {
  return program.starts_with("python") || program == "sh" || program == "bash" ||
         program == "env" || program == "perl" || program == "ruby" || program == "node";
}

std::string stemOf(const std::string& path) {
  return std::filesystem::path(path).stem().string();
}

std::string quoted(const std::string& word) {
  // $(NAME) is ours and reads better bare.
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

void addNotes(const v1::TrainingJob& job, v1::Role role, int replicas, bool with_unused,
              std::vector<std::string>* notes) {
  const StatusOr<control::TaskCommand> command = control::taskCommand(job, role);
  if (!command.ok() || replicas == 0) return;
  const std::string_view name = control::roleName(role);
  const std::string tasks = replicas == 1 ? fmt::format("{}-0 runs", name)
                            : replicas == 2
                                ? fmt::format("{0}-0 and {0}-1 run", name)
                                : fmt::format("{0}-0 to {0}-{1} run", name, replicas - 1);
  notes->push_back(fmt::format("{}: {}", tasks, commandText(command->argv)));
  if (with_unused && !command->ignored.empty()) {
    notes->push_back("not used on one machine: " + join(command->ignored, ", "));
  }
}

std::vector<std::string> notesOf(const v1::TrainingJob& job, bool with_unused) {
  std::vector<std::string> notes;
  if (!control::isForeign(job)) return notes;
  addNotes(job, v1::ROLE_PS, job.spec().ps().replicas(), with_unused, &notes);
  addNotes(job, v1::ROLE_WORKER, job.spec().worker().replicas(), with_unused, &notes);
  return notes;
}

}  // namespace

std::string jobNameOf(const std::vector<std::string>& command) {
  std::string source = command.empty() ? "" : stemOf(command.front());
  if (isInterpreter(source)) {
    const auto script =
        std::find_if(command.begin() + 1, command.end(), [](const std::string& word) {
          return !word.starts_with('-') && word.find_first_of(" ;=") == std::string::npos;
        });
    if (script != command.end()) source = stemOf(*script);
  }
  std::string name;
  for (const char c : source) {
    const auto byte = static_cast<unsigned char>(c);
    const bool letter = byte < 0x80 && std::isalpha(byte) != 0;
    const bool digit = byte < 0x80 && std::isdigit(byte) != 0;
    if (name.empty() && !letter) continue;
    name += letter || digit ? static_cast<char>(std::tolower(byte)) : '-';
  }
  name = name.substr(0, kMaxName);
  while (name.ends_with('-')) name.pop_back();
  return name.empty() ? "command" : name;
}

StatusOr<v1::TrainingJob> jobOfCommand(const std::vector<std::string>& command, int processes) {
  const Json container{{"name", "task"}, {"command", command}};
  Json job;
  job["apiVersion"] = "trainyard.dev/v1alpha1";
  job["kind"] = "TrainingJob";
  job["metadata"]["name"] = jobNameOf(command);
  job["spec"]["strategy"] = "AllReduce";
  job["spec"]["worker"] = {{"replicas", processes},
                           {"restartPolicy", "Never"},
                           {"template", {{"spec", {{"containers", Json::array({container})}}}}}};
  job["spec"]["runPolicy"]["successPolicy"] = "AllWorkers";
  std::string text;
  try {
    text = job.dump();
  } catch (const Json::exception&) {
    return absl::InvalidArgumentError("the command is no UTF-8 text");
  }
  return control::parseJob(text, "the command", {}, nullptr);
}

std::string commandText(const std::vector<std::string>& argv) {
  std::string text;
  for (const std::string& word : argv) text += (text.empty() ? "" : " ") + quoted(word);
  return text;
}

std::vector<std::string> taskPrograms(const v1::TrainingJob& job) {
  return notesOf(job, /*with_unused=*/false);
}

std::vector<std::string> programNotes(const v1::TrainingJob& job) {
  return notesOf(job, /*with_unused=*/true);
}

}  // namespace trainyard::cli
