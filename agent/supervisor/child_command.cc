#include "agent/supervisor/child_command.h"

#include <algorithm>
#include <string_view>

#include "agent/membership/identity.h"
#include "fmt/format.h"

namespace trainyard::agent {

std::vector<std::string> childArguments(const ChildCommand& command, std::uint32_t start) {
  std::vector<std::string> argv = {
      command.runtime,  roleName(command.id.role()),
      "--job",          command.job_file,
      "--job-dir",      command.job_dir,
      "--task-dir",     command.task_dir,
      "--index",        fmt::to_string(command.id.index()),
      "--created",      fmt::to_string(command.created),
      "--start",        fmt::to_string(start),
      "--port",         fmt::to_string(command.port),
      "--agent-socket", command.agent_socket,
      "--token",        command.token_file,
      "--membership",   command.membership_file,
      "--bind",         command.bind,
      "--threads",      fmt::to_string(command.threads.number),
      "--log-format",   command.log_format,
  };
  if (!command.checkpoints.empty()) {
    argv.push_back("--checkpoints");
    argv.push_back(command.checkpoints);
  }
  if (!command.threads.reason.empty()) {
    argv.push_back("--threads-reason");
    argv.push_back(command.threads.reason);
  }
  if (!command.program.empty()) {
    argv.push_back("--program");
    argv.push_back(command.program);
  }
  for (const std::string& volume : command.volumes) {
    argv.push_back("--volume");
    argv.push_back(volume);
  }
  return argv;
}

std::vector<std::string> childEnvironment(const std::vector<std::string>& environment) {
  std::vector<std::string> kept;
  for (const std::string& entry : environment) {
    const std::string_view name = std::string_view(entry).substr(0, entry.find('='));
    const bool handed_on = name == "TRAINYARD_FAILPOINTS" || name == "TRAINYARD_LIBRARY";
    const bool internal = name.starts_with("TRAINYARD_") && !handed_on;
    if (!internal && !name.starts_with("LD_")) kept.push_back(entry);
  }
  return kept;
}

std::vector<std::string> runtimeEnvironment(const std::vector<std::string>& environment) {
  std::vector<std::string> entries = childEnvironment(environment);
  const bool chosen = std::any_of(entries.begin(), entries.end(), [](const std::string_view entry) {
    return entry.starts_with("OMP_WAIT_POLICY=") || entry.starts_with("GOMP_SPINCOUNT=");
  });
  if (!chosen) entries.emplace_back("OMP_WAIT_POLICY=passive");
  return entries;
}

}  // namespace trainyard::agent
