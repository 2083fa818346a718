#include "operator/local/leftovers.h"

#include <signal.h>
#include <sys/types.h>

#include <fstream>
#include <system_error>
#include <vector>

#include "base/core/strings.h"
#include "base/process/files.h"
#include "base/process/poll.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace trainyard::control {
namespace {

namespace fs = std::filesystem;

constexpr Duration kGoneBound = std::chrono::seconds(2);
constexpr Duration kLook = std::chrono::milliseconds(20);
constexpr std::streamoff kLogTailBytes = 16 << 10;
constexpr std::size_t kMaxCommandLineBytes = 1 << 20;

// "2026-01-31T13:05:09.123Z E worker-1: data.images: ..." -> "data.images: ..."
std::string errorInTextLine(std::string_view line) {
  const auto [time, rest] = splitFirst(line, ' ');
  const auto [level, message] = splitFirst(rest, ' ');
  if (level != "E" || time.find('T') == std::string_view::npos) return "";
  const auto [task, text] = splitFirst(message, ':');
  const bool has_task = task.starts_with("ps-") || task.starts_with("worker-");
  return std::string(trim(has_task ? text : message));
}

std::string errorInLine(std::string_view line) {
  if (!line.starts_with('{')) return errorInTextLine(line);
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object() || json.value("level", "") != "error") return "";
  return json.value("message", "");
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
    while (isProcessOfTask(agent.pid, dir) || isProcessOfTask(agent.child_pid, dir)) {
      if (clock.now() >= deadline) return;
      pollUntil({}, clock.now() + kLook);
    }
  }
}

std::string lastErrorOf(const fs::path& log) {
  std::ifstream in(log, std::ios::binary | std::ios::ate);
  if (!in) return "";
  const std::streamoff size = in.tellg();
  in.seekg(std::max<std::streamoff>(0, size - kLogTailBytes));
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::vector<std::string_view> lines = split(text, '\n');
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    if (std::string error = errorInLine(*line); !error.empty()) return error;
  }
  return "";
}

}  // namespace trainyard::control
