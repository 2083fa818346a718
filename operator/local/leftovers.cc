#include "operator/local/leftovers.h"

#include <signal.h>
#include <sys/types.h>

#include <algorithm>
#include <fstream>
#include <system_error>
#include <vector>

#include "base/core/strings.h"
#include "base/process/files.h"
#include "base/process/new_file.h"
#include "base/process/poll.h"
#include "fmt/format.h"
#include "operator/record/last_words.h"

namespace trainyard::control {
namespace {

namespace fs = std::filesystem;

constexpr Duration kGoneBound = std::chrono::seconds(2);
constexpr Duration kLookAgain = std::chrono::milliseconds(20);
constexpr std::streamoff kLogTailBytes = 16 << 10;
constexpr std::size_t kMaxCommandLineBytes = 1 << 20;

// What the agent puts into the environment of a program of the user's own, and all that this starts
// inherit.
std::string markOf(const fs::path& task_dir) {
  return "TRAINYARD_MEMBERSHIP_FILE=" + (task_dir / "membership.json").string();
}

// Processes that an agent has started from a command, wherever they have gone since.
std::vector<pid_t> programsOf(const fs::path& task_dir) {
  std::vector<pid_t> found;
  std::error_code ignored;
  if (!fs::exists(task_dir / "command.json", ignored)) return found;
  const std::string mark = markOf(task_dir);
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const auto pid = parseNumber<pid_t>(entry.path().filename().string());
    if (!pid || *pid <= 1) continue;
    const auto environment = readFile(entry.path() / "environ", kMaxCommandLineBytes);
    if (!environment.ok()) continue;
    const std::vector<std::string_view> variables = split(*environment, '\0');
    if (std::find(variables.begin(), variables.end(), mark) != variables.end()) {
      found.push_back(*pid);
    }
  }
  return found;
}

std::string tailOf(const fs::path& log) {
  std::ifstream in(log, std::ios::binary | std::ios::ate);
  if (!in) return "";
  const std::streamoff size = in.tellg();
  in.seekg(std::max<std::streamoff>(0, size - kLogTailBytes));
  return std::string{std::istreambuf_iterator<char>(in), {}};
}

// Not of job.json: another command may be changing the job at this moment.
void removeUnfinishedIn(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const auto name = madeFor(entry.path().filename().native());
    if (name && !name->starts_with("job.")) fs::remove(entry.path(), ignored);
  }
}

}  // namespace

bool isProcessOfTask(int pid, const fs::path& task_dir) {
  if (pid <= 1) return false;
  const auto command = readFile(fmt::format("/proc/{}/cmdline", pid), kMaxCommandLineBytes);
  if (!command.ok()) return false;
  for (const std::string_view argument : split(*command, '\0')) {
    if (argument == task_dir.string()) return true;
  }
  return false;  // also a zombie: its command line is empty
}

bool killProcessesOfTask(const AgentFile& agent, const fs::path& task_dir) {
  bool lived = false;
  for (const int pid : {agent.pid, agent.child_pid}) {
    if (!isProcessOfTask(pid, task_dir)) continue;
    lived = true;
    ::kill(pid, SIGKILL);
  }
  for (const pid_t pid : programsOf(task_dir)) {
    lived = true;
    ::kill(pid, SIGKILL);
  }
  return lived;
}

void endLeftoversOf(const RunPaths& paths, const Clock& clock) {
  std::vector<std::pair<AgentFile, fs::path>> alive;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(paths.tasks(), ignored)) {
    const fs::path file = entry.path() / "agent.json";
    if (const auto agent = readAgentFile(file); agent.ok()) {
      if (killProcessesOfTask(*agent, entry.path())) alive.emplace_back(*agent, entry.path());
    }
    fs::remove(file, ignored);
  }
  const TimePoint deadline = clock.now() + kGoneBound;
  for (const auto& [agent, dir] : alive) {
    while (isProcessOfTask(agent.pid, dir) || isProcessOfTask(agent.child_pid, dir) ||
           !programsOf(dir).empty()) {
      if (clock.now() >= deadline) return;
      pollUntil({}, clock.now() + kLookAgain);
    }
  }
  removeUnfinishedIn(paths.dir);
  for (const auto& entry : fs::directory_iterator(paths.tasks(), ignored)) {
    removeUnfinishedIn(entry.path());
  }
}

std::string lastErrorOf(const fs::path& log) {
  return lastErrorIn(tailOf(log));
}

std::string lastOutputOf(const fs::path& log) {
  return lastOutputIn(tailOf(log));
}

}  // namespace trainyard::control
