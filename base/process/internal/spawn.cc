#include "base/process/internal/spawn.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <vector>

#include "fmt/format.h"

namespace trainyard::internal {
namespace {

// All that the child needs between vfork and exec, ready-made: it shares our memory there and may
// call only async-signal-safe functions.
struct ChildPlan {
  char* const* argv;
  char* const* envp;
  const char* cwd;  // null: stay
  int input;
  int output;  // -1: inherited
  bool inherit_error;
  bool group;
  bool session;
  bool die_with_parent;
  pid_t parent;
  const int* keep;  // sorted
  std::size_t keep_count;
};

// Written by the child into our memory when it could not become the program.
struct Failure {
  const char* stage = nullptr;
  int error = 0;
};

// Closed here and now: close-on-exec takes effect only after vfork's parent goes on, which could
// then find a lock or port of its own still held.
void closeRange(unsigned first, unsigned last) {
  if (first > last || ::syscall(SYS_close_range, first, last, 0) == 0) return;
  rlimit limit{};  // kernels before 5.9
  const bool known = ::getrlimit(RLIMIT_NOFILE, &limit) == 0;
  const unsigned end =
      known ? static_cast<unsigned>(std::min<rlim_t>(limit.rlim_cur, 1 << 16)) : 1024;
  for (unsigned fd = first; fd <= last && fd < end; ++fd) ::close(static_cast<int>(fd));
}

void closeAbove2Except(const int* sorted, std::size_t count) {
  unsigned from = 3;
  for (std::size_t i = 0; i < count; ++i) {
    const auto kept = static_cast<unsigned>(sorted[i]);
    if (kept < from) continue;
    closeRange(from, kept - 1);
    from = kept + 1;
  }
  closeRange(from, ~0U);
}

// Handlers of ours must not run in the child, which still shares our memory when it unblocks
// signals.
void resetSignals() {
  struct sigaction fallback {};
  fallback.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) ::sigaction(number, &fallback, nullptr);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

[[noreturn]] void fail(volatile Failure* failure, const char* stage) {
  failure->error = errno;
  failure->stage = stage;
  ::_exit(127);
}

[[noreturn]] __attribute__((noinline)) void becomeProgram(const ChildPlan& plan,
                                                          volatile Failure* failure) {
  if (plan.session && ::setsid() < 0) fail(failure, "new session for");
  if (plan.group && !plan.session && ::setpgid(0, 0) != 0) fail(failure, "new process group for");
  if (plan.die_with_parent) {
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail(failure, "set the parent-death signal for");
    // The parent may have died before the line above.
    if (::getppid() != plan.parent) ::_exit(127);
  }
  if (plan.cwd != nullptr && ::chdir(plan.cwd) != 0) fail(failure, "change folder for");
  if (::dup2(plan.input, 0) < 0) fail(failure, "standard input of");
  if (plan.output >= 0) {
    const bool both =
        ::dup2(plan.output, 1) >= 0 && (plan.inherit_error || ::dup2(plan.output, 2) >= 0);
    if (!both) fail(failure, "standard output of");
  }
  closeAbove2Except(plan.keep, plan.keep_count);
  for (std::size_t i = 0; i < plan.keep_count; ++i) {
    if (::fcntl(plan.keep[i], F_SETFD, 0) != 0) fail(failure, "pass a descriptor to");
  }
  resetSignals();
  ::execvpe(plan.argv[0], plan.argv, plan.envp);
  fail(failure, "start");
}

// In a function of its own: after vfork the child runs on this very stack frame until it execs.
__attribute__((noinline)) pid_t vforkProgram(const ChildPlan& plan, volatile Failure* failure) {
  const pid_t pid = ::vfork();
  if (pid == 0) becomeProgram(plan, failure);
  return pid;
}

// Valid as long as `texts` is.
std::vector<char*> pointersTo(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// "NAME" of "NAME=value".
std::string_view nameOf(std::string_view variable) {
  return variable.substr(0, variable.find('='));
}

std::vector<std::string> environmentOf(const SpawnOptions& options) {
  std::vector<std::string> all = options.more_env;
  const auto add = [&](std::string_view variable) {
    for (const std::string& given : options.more_env) {
      if (nameOf(given) == nameOf(variable)) return;
    }
    all.emplace_back(variable);
  };
  if (options.env.has_value()) {
    for (const std::string& variable : *options.env) add(variable);
  } else {
    for (char** at = environ; at != nullptr && *at != nullptr; ++at) add(*at);
  }
  return all;
}

}  // namespace

StatusOr<pid_t> spawnProgram(const SpawnOptions& options, int output) {
  // Above 2, or dup2 in the child could overwrite it or leave it close-on-exec.
  UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const UniqueFd input(null.valid() ? ::fcntl(null.get(), F_DUPFD_CLOEXEC, 3) : -1);
  if (!input.valid()) return errnoStatus(errno, "open /dev/null");

  const std::vector<char*> argv = pointersTo(options.argv);
  const std::vector<std::string> environment = environmentOf(options);
  const std::vector<char*> envp = pointersTo(environment);
  std::vector<int> keep = options.keep_fds;
  std::sort(keep.begin(), keep.end());
  const ChildPlan plan{.argv = argv.data(),
                       .envp = envp.data(),
                       .cwd = options.cwd.empty() ? nullptr : options.cwd.c_str(),
                       .input = input.get(),
                       .output = output,
                       .inherit_error = options.inherit_error,
                       .group = options.new_process_group,
                       .session = options.new_session,
                       .die_with_parent = options.die_with_spawning_thread,
                       .parent = ::getpid(),
                       .keep = keep.data(),
                       .keep_count = keep.size()};
  volatile Failure failure;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = vforkProgram(plan, &failure);
  const int fork_error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) return errnoStatus(fork_error, fmt::format("start {}", options.argv[0]));
  if (failure.stage == nullptr) return pid;
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  const char* stage = failure.stage;
  return errnoStatus(failure.error, fmt::format("{} {}", stage, options.argv[0]));
}

}  // namespace trainyard::internal
