// The part of child_process.h about processes that nobody started on purpose: orphans and
// descendants.
#include <dirent.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string>

#include "base/core/strings.h"
#include "base/process/child_process.h"
#include "base/process/files.h"
#include "base/process/poll.h"
#include "fmt/format.h"

namespace trainyard {
namespace {

constexpr std::size_t kMaxStatBytes = 4096;

// The parent's pid, from /proc/<pid>/stat: "pid (name) state ppid ..."; the name may hold anything.
std::optional<pid_t> parentOf(pid_t pid) {
  const StatusOr<std::string> text = readFile(fmt::format("/proc/{}/stat", pid), kMaxStatBytes);
  if (!text.ok()) return std::nullopt;
  const std::size_t name_end = text->rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  const auto fields = split(std::string_view(*text).substr(name_end + 1), ' ');
  return fields.size() > 2 ? parseNumber<pid_t>(fields[2]) : std::nullopt;
}

std::vector<pid_t> childrenOf(pid_t parent) {
  std::vector<pid_t> children;
  DIR* proc = ::opendir("/proc");
  if (proc == nullptr) return children;
  while (const dirent* entry = ::readdir(proc)) {
    const auto pid = parseNumber<pid_t>(entry->d_name);
    if (pid.has_value() && parentOf(*pid) == parent) children.push_back(*pid);
  }
  ::closedir(proc);
  return children;
}

}  // namespace

Status becomeSubreaper() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0) return absl::OkStatus();
  return errnoStatus(errno, "become a subreaper");
}

int reapOrphans(const std::vector<pid_t>& ours) {
  int reaped = 0;
  for (;;) {
    siginfo_t info{};
    // Looks first: a child of `ours` must stay for its ChildProcess. It would hide other ended ones
    // behind it, which is why the caller polls ours before.
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
      return reaped;
    if (std::find(ours.begin(), ours.end(), info.si_pid) != ours.end()) return reaped;
    if (::waitpid(info.si_pid, nullptr, WNOHANG) > 0) ++reaped;
  }
}

bool killDescendants(TimePoint deadline) {
  for (;;) {
    // A killed child's children become ours (subreaper): hence again until there is none.
    for (const pid_t pid : childrenOf(::getpid())) ::kill(pid, SIGKILL);
    pid_t reaped = 0;
    while ((reaped = ::waitpid(-1, nullptr, WNOHANG)) > 0) {
    }
    if (reaped < 0 && errno == ECHILD) return true;
    const TimePoint now = systemClock().now();
    if (now >= deadline) return false;
    pollUntil({}, std::min(deadline, now + std::chrono::milliseconds(5)));
  }
}

bool dieWithParent(pid_t expected_parent) {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return false;
  return expected_parent == 0 || ::getppid() == expected_parent;
}

}  // namespace trainyard
