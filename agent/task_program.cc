#include "agent/task_program.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include "agent/membership/membership_file.h"
#include "agent/supervisor/child_command.h"
#include "agent/supervisor/runtime_choice.h"
#include "base/core/log.h"
#include "base/core/strings.h"
#include "base/process/files.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace trainyard::agent {
namespace {

std::map<std::string, std::string> volumesOf(const std::vector<std::string>& flags) {
  std::map<std::string, std::string> volumes;
  for (const std::string& flag : flags) {
    const auto [name, folder] = splitFirst(flag, '=');
    volumes[std::string(name)] = std::string(folder);
  }
  return volumes;
}

// Null where it is not set.
const char* valueIn(const std::vector<std::string>& environment, std::string_view name) {
  for (const std::string& entry : environment) {
    if (splitFirst(entry, '=').first == name && entry.size() > name.size()) {
      return entry.c_str() + name.size() + 1;
    }
  }
  return nullptr;
}

// Lines of several processes in one stream, each with the name of its process. One write each, so
// that they stay whole.
std::function<void(std::string_view)> prefixedOutput(const std::string& name) {
  return [name](std::string_view line) {
    const std::string text = fmt::format("{}: {}\n", name, line);
    if (::write(STDOUT_FILENO, text.data(), text.size()) < 0) {
      TY_DEBUG("agent: {}: output: {}", name, std::strerror(errno));
    }
  };
}

}  // namespace

ForeignPlace TaskProgram::placeOf(std::uint32_t process) const {
  return {.process = process,
          .report = sockets_.tell != nullptr ? sockets_.tell->path(process) : "",
          .taken = {flags_.agent_port, flags_.metrics_port}};
}

StatusOr<ForeignProgram> TaskProgram::readProgram() const {
  if (!flags_.command_file.empty()) return readForeignProgram(flags_.command_file);
  return foreignProgram(flags_.program, volumesOf(flags_.program_volumes), environment_);
}

StatusOr<SpawnOptions> TaskProgram::prepareForeign(const v1::Membership& membership,
                                                   const std::string& file,
                                                   std::uint32_t process) const {
  TY_ASSIGN_OR_RETURN(ForeignProgram program, readProgram());
  program.gpu_by_rank = flags_.gpu_by_rank;
  ForeignStart start = foreignStart(
      program, foreignVariables(membership, self_, file, program.volumes, placeOf(process)),
      self_.id.role(), environment_, sockets_.secret);
  SpawnOptions options;
  options.argv = std::move(start.argv);
  options.env = std::move(start.env);
  options.cwd = program.working_dir;
  if (self_.processes > 1) options.on_line = prefixedOutput(processName(self_, process));
  return options;
}

// The command that the runtime starts beside it, for a program that brings the model; the path.
// Nothing where the runtime has the model itself.
StatusOr<std::string> TaskProgram::writeProgram(const std::string& task_dir,
                                                const std::string& file,
                                                std::uint32_t process) const {
  if (flags_.command_file.empty() && flags_.program.empty()) return "";
  TY_ASSIGN_OR_RETURN(const ForeignProgram program, readProgram());
  const ForeignStart start = foreignStart(
      program, foreignVariables(*store_.newest(), self_, file, program.volumes, placeOf(process)),
      self_.id.role(), environment_);
  const nlohmann::ordered_json json = {
      {"argv", start.argv}, {"env", start.env}, {"workingDir", program.working_dir}};
  const std::filesystem::path path = std::filesystem::path(task_dir) / "program.json";
  // The environment may hold secrets.
  TY_RETURN_IF_ERROR(replaceFile(path, json.dump() + "\n", 0600));
  return path.native();
}

// Where the program reads it; the path.
StatusOr<std::string> TaskProgram::writeMembership(const v1::Membership& membership) const {
  const std::filesystem::path path = std::filesystem::path(flags_.task_dir) / "membership.json";
  TY_RETURN_IF_ERROR(replaceFile(path, formatMembership(membership)));
  return path.native();
}

StatusOr<std::string> TaskProgram::tell() const {
  const auto newest = store_.newest();
  TY_RETURN_IF_ERROR(writeMembership(*newest).status());
  return fingerprint(foreignVariables(*newest, self_, "", {}, placeOf(0)));
}

StatusOr<std::vector<NamedProcess>> TaskProgram::prepare(std::uint32_t start, int port,
                                                         const v1::RuntimeReport& former) {
  if (sockets_.tell != nullptr) sockets_.tell->discard();
  // The program reads what this agent goes by, which a push may have made newer than the job's
  // file.
  const auto newest = store_.newest();
  v1::Membership told = *newest;
  if (former.has_job()) {
    told.set_reached(former.job().step());
    told.set_lost_steps(std::max(told.lost_steps(), former.job().lost_steps()));
  }
  TY_ASSIGN_OR_RETURN(const std::string membership, writeMembership(told));
  std::vector<NamedProcess> program;
  for (std::uint32_t process = 0; process < self_.processes; ++process) {
    NamedProcess one;
    if (self_.processes > 1) one.name = processName(self_, process);
    if (self_.foreign) {
      TY_ASSIGN_OR_RETURN(one.options, prepareForeign(*newest, membership, process));
    } else {
      TY_ASSIGN_OR_RETURN(one.options, prepareRuntime(start, port, membership, process));
    }
    one.options.new_process_group = true;
    one.options.die_with_spawning_thread = true;
    program.push_back(std::move(one));
  }
  return program;
}

// What only one of several processes writes lies in a folder of its own, and only the first listens
// on the task's port.
StatusOr<SpawnOptions> TaskProgram::prepareRuntime(std::uint32_t start, int port,
                                                   const std::string& membership,
                                                   std::uint32_t process) const {
  std::string task_dir = flags_.task_dir;
  if (self_.processes > 1) {
    task_dir = (std::filesystem::path(task_dir) / fmt::format("process-{}", process)).native();
    TY_RETURN_IF_ERROR(makeDirectories(task_dir, 0700));
  }
  TY_ASSIGN_OR_RETURN(const std::string program, writeProgram(task_dir, membership, process));
  TY_ASSIGN_OR_RETURN(const RuntimeChoice choice,
                      chooseRuntime(flags_.job_file, flags_.runtime, self_, flags_.workers_here,
                                    valueIn(environment_, "CUDA_VISIBLE_DEVICES")));
  const ChildCommand command{.runtime = choice.program,
                             .id = processId(self_, process),
                             .created = self_.created,
                             .job_file = flags_.job_file,
                             .job_dir = flags_.job_dir,
                             .checkpoints = flags_.checkpoints,
                             .task_dir = task_dir,
                             .token_file = flags_.token_file,
                             .membership_file = membership,
                             .agent_socket = sockets_.report,
                             .bind = flags_.bind,
                             .port = process == 0 ? port : 0,
                             .threads = choice.threads,
                             .program = program,
                             .log_format = flags_.log_format,
                             .volumes = flags_.volumes};
  SpawnOptions options;
  options.argv = childArguments(command, start);
  options.env = runtimeEnvironment(environment_);
  return options;
}

}  // namespace trainyard::agent
