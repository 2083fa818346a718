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

// Where the script of a Python stands, or "-m" and its module, behind the interpreter's own
// options; the end where there is none: another program, code in its place, standard input.
std::vector<std::string>::const_iterator scriptOf(const std::vector<std::string>& command) {
  const bool python =
      !command.empty() &&
      std::filesystem::path(command.front()).filename().string().starts_with("python");
  if (!python) return command.end();
  for (auto word = command.begin() + 1; word != command.end(); ++word) {
    if (!word->starts_with('-')) return word;
    if (*word == "-m" && word + 1 != command.end()) return word;
    const std::size_t special = word->find_first_of("cmWX", 1);
    if (word->size() == 1 || word->starts_with("--")) break;
    if (special == std::string::npos) continue;
    if ((*word)[special] == 'c' || (*word)[special] == 'm') break;
    // -W and -X take a value, in the same word or in the next.
    if (special + 1 == word->size() && ++word == command.end()) break;
  }
  return command.end();
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
  const std::pair<v1::Role, int> roles[] = {{v1::ROLE_PS, job.spec().ps().replicas()},
                                            {v1::ROLE_WORKER, job.spec().worker().replicas()}};
  for (const auto& [role, replicas] : roles) {
    if (control::namesProgram(job, role)) addNotes(job, role, replicas, with_unused, &notes);
  }
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

StatusOr<std::vector<std::string>> withHorovodNames(const std::vector<std::string>& command) {
  const auto script = scriptOf(command);
  if (script == command.end()) {
    return absl::InvalidArgumentError(fmt::format(
        "--horovod: {} is no Python program: python3 SCRIPT ARGUMENTS", commandText(command)));
  }
  std::vector<std::string> words(command.begin(), script);
  words.insert(words.end(), {"-m", "trainyard.compat"});
  words.insert(words.end(), script, command.end());
  return words;
}

StatusOr<Json> documentOf(const CommandJob& command) {
  std::vector<std::string> argv = command.command;
  if (command.horovod) {
    TY_ASSIGN_OR_RETURN(argv, withHorovodNames(argv));
  }
  Json container{{"name", "task"}};
  if (!command.image.empty()) container["image"] = command.image;
  container["command"] = argv;
  if (command.gpus > 0) {
    container["resources"]["limits"]["nvidia.com/gpu"] = std::to_string(command.gpus);
  }
  Json job;
  job["apiVersion"] = "trainyard.dev/v1alpha1";
  job["kind"] = "TrainingJob";
  job["metadata"]["name"] = command.name.empty() ? jobNameOf(command.command) : command.name;
  job["spec"]["strategy"] = "AllReduce";
  job["spec"]["worker"] = {{"replicas", command.processes},
                           {"restartPolicy", "Never"},
                           {"template", {{"spec", {{"containers", Json::array({container})}}}}}};
  job["spec"]["runPolicy"]["successPolicy"] = "AllWorkers";
  return job;
}

StatusOr<v1::TrainingJob> jobOfCommand(const CommandJob& command) {
  TY_ASSIGN_OR_RETURN(const Json job, documentOf(command));
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
