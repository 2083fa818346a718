#include "cli/plan/program_variables.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <ostream>
#include <utility>

#include "agent/supervisor/foreign_program.h"
#include "base/core/strings.h"
#include "base/json/proto_json.h"
#include "base/process/files.h"
#include "base/process/run_to_end.h"
#include "cli/plan/script_variables.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "operator/job/template.h"
#include "operator/local/volumes.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kTemplate[] = "spec.worker.template";
// Of a runtime that hangs; it has a limit of its own for the program.
constexpr std::chrono::minutes kRuntimeLimit{12};
constexpr std::size_t kMaxDeclaration = 64 << 20;

std::vector<std::string> ownEnvironment() {
  std::vector<std::string> variables;
  for (char** each = environ; *each != nullptr; ++each) variables.emplace_back(*each);
  return variables;
}

// Goes with all that is in it.
class TemporaryFolder {
 public:
  TemporaryFolder() : made_(::mkdtemp(path_.data()) != nullptr), error_(errno) {}
  ~TemporaryFolder() {
    std::error_code ignored;
    if (made_) fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  Status status() const { return made_ ? absl::OkStatus() : errnoStatus(error_, path_); }
  std::string file(std::string_view name) const { return fmt::format("{}/{}", path_, name); }

 private:
  std::string path_ = (fs::temp_directory_path() / "trainyard-plan-XXXXXX").string();
  bool made_;
  int error_;
};

// As its agent would start it, alone.
StatusOr<std::string> commandOf(const v1::TrainingJob& job) {
  TY_ASSIGN_OR_RETURN(const control::TaskCommand command,
                      control::taskCommand(job, v1::ROLE_WORKER));
  agent::ForeignProgram program;
  program.argv = command.argv;
  program.env = command.env;
  agent::Variables variables = {{"TRAINYARD_JOB", job.metadata().name()},
                                {"TRAINYARD_ROLE", "worker"},
                                {"TRAINYARD_INDEX", "0"},
                                {"RANK", "0"},
                                {"LOCAL_RANK", "0"},
                                {"WORLD_SIZE", "1"},
                                {"LOCAL_WORLD_SIZE", "1"}};
  for (const auto& [volume, folder] : control::volumeFolders(job.spec()))
    variables.emplace_back(agent::volumeVariable(volume), folder);
  const agent::ForeignStart start =
      agent::foreignStart(program, variables, v1::ROLE_WORKER, ownEnvironment());
  return nlohmann::ordered_json{
      {"argv", start.argv}, {"env", start.env}, {"workingDir", command.working_dir}}
      .dump();
}

Status refused(std::string_view what) {
  return invalidInput(kTemplate,
                      fmt::format("the program was run until it declares its model: {}", what));
}

// trainyard-runtime declare: its standard output and error are the program's, too.
Status declare(const std::string& runtime, const std::string& job_file, const std::string& command,
               const std::string& declaration, std::ostream& output) {
  std::string last;
  SpawnOptions spawn;
  spawn.argv = {runtime,     "declare", "--job",    job_file,
                "--program", command,   "--output", declaration};
  spawn.die_with_spawning_thread = true;
  spawn.on_line = [&](std::string_view line) {
    output << line << "\n";
    last = line;
  };
  const StatusOr<ExitState> exit = runToEnd(spawn, kRuntimeLimit);
  if (!exit.ok()) return refused(fromAbsl(exit.status().message()));
  return *exit == ExitState{} ? absl::OkStatus() : refused(last.empty() ? toString(*exit) : last);
}

}  // namespace

StatusOr<std::vector<runtime::Variable>> programVariables(const std::string& runtime,
                                                          const v1::TrainingJob& job,
                                                          std::ostream& output) {
  const TemporaryFolder folder;
  TY_RETURN_IF_ERROR(folder.status());
  TY_ASSIGN_OR_RETURN(const std::string command, commandOf(job));
  // The environment may hold secrets.
  TY_RETURN_IF_ERROR(writeFileAtomically(folder.file("program.json"), command, 0600));
  TY_RETURN_IF_ERROR(writeFileAtomically(folder.file("job.json"), toJson(job).dump()));
  TY_RETURN_IF_ERROR(declare(runtime, folder.file("job.json"), folder.file("program.json"),
                             folder.file("declaration.json"), output));
  TY_ASSIGN_OR_RETURN(const std::string text,
                      readFile(folder.file("declaration.json"), kMaxDeclaration));
  return parseVariables(text);
}

}  // namespace trainyard::cli
