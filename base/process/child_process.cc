#include "base/process/child_process.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/core/check.h"
#include "base/process/internal/line_reader.h"
#include "base/process/internal/spawn.h"
#include "base/process/pipe.h"
#include "base/process/poll.h"
#include "fmt/format.h"

namespace trainyard {
namespace {

ExitState toExitState(int wait_status) {
  if (WIFSIGNALED(wait_status)) return {.code = 0, .signal = WTERMSIG(wait_status)};
  return {.code = WEXITSTATUS(wait_status), .signal = 0};
}

StatusOr<UniqueFd> openOutput(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644));
  if (!fd.valid()) return errnoStatus(errno, fmt::format("open {}", path));
  UniqueFd above(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 3));  // not one of 0..2 where those are closed
  if (!above.valid()) return errnoStatus(errno, fmt::format("open {}", path));
  return above;
}

}  // namespace

std::string toString(const ExitState& exit) {
  if (exit.signal == 0) return fmt::format("exit code {}", exit.code);
  return fmt::format("killed by signal {} ({})", exit.signal, ::strsignal(exit.signal));
}

struct ChildProcess::State {
  pid_t pid = -1;
  bool has_group = false;
  UniqueFd pid_fd;
  std::optional<ExitState> exit;
  std::unique_ptr<internal::LineReader> reader;
};

ChildProcess::ChildProcess(std::unique_ptr<State> state) : state_(std::move(state)) {}
ChildProcess::ChildProcess(ChildProcess&&) noexcept = default;

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (state_ == nullptr || state_->exit.has_value()) return;
  ::kill(state_->pid, SIGKILL);
  // SIGKILL ends everything but a process in an uninterruptible system call.
  (void)wait(systemClock().now() + std::chrono::seconds(10));
}

StatusOr<ChildProcess> ChildProcess::spawn(const SpawnOptions& options) {
  if (options.argv.empty() || options.argv[0].empty()) {
    return absl::InvalidArgumentError("spawn: no program given");
  }
  if (!options.output_file.empty() && options.on_line) {
    return absl::InvalidArgumentError("spawn: output_file and on_line exclude each other");
  }
  UniqueFd output;
  Pipe pipe;
  if (!options.output_file.empty()) {
    TY_ASSIGN_OR_RETURN(output, openOutput(options.output_file));
  } else if (options.on_line) {
    TY_ASSIGN_OR_RETURN(pipe, makePipe());
    output = std::move(pipe.write_end);
  }
  TY_ASSIGN_OR_RETURN(WakeUp stop_reader, WakeUp::create());
  TY_ASSIGN_OR_RETURN(const pid_t pid, internal::spawnProgram(options, output.get()));
  auto state = std::make_unique<State>();
  state->pid = pid;
  state->has_group = options.new_process_group || options.new_session;
  state->pid_fd = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  output.reset();  // or the reader would never see the end
  if (options.on_line) {
    state->reader = std::make_unique<internal::LineReader>(std::move(pipe.read_end),
                                                           std::move(stop_reader), options.on_line);
  }
  return ChildProcess(std::move(state));
}

pid_t ChildProcess::pid() const {
  return state_->pid;
}
int ChildProcess::pidFd() const {
  return state_->pid_fd.get();
}

StatusOr<std::optional<ExitState>> ChildProcess::poll() {
  if (state_->exit.has_value()) return state_->exit;
  int wait_status = 0;
  pid_t reaped = -1;
  do {
    reaped = ::waitpid(state_->pid, &wait_status, WNOHANG);
  } while (reaped < 0 && errno == EINTR);
  if (reaped < 0) return errnoStatus(errno, fmt::format("wait for process {}", state_->pid));
  if (reaped == 0) return std::optional<ExitState>();
  state_->exit = toExitState(wait_status);
  if (state_->reader != nullptr) state_->reader->finish();
  return state_->exit;
}

Status ChildProcess::signal(int number) {
  if (state_->exit.has_value()) {
    return absl::FailedPreconditionError(fmt::format("process {} has ended", state_->pid));
  }
  if (::kill(state_->pid, number) == 0) return absl::OkStatus();
  return errnoStatus(errno, fmt::format("signal {} to process {}", number, state_->pid));
}

Status ChildProcess::signalGroup(int number) {
  if (!state_->has_group) {
    return absl::FailedPreconditionError(
        fmt::format("process {} has no group of its own", state_->pid));
  }
  // A group's number is not given to a new process while a member lives; with none left: ESRCH.
  if (::kill(-state_->pid, number) == 0 || errno == ESRCH) return absl::OkStatus();
  return errnoStatus(errno, fmt::format("signal {} to process group {}", number, state_->pid));
}

StatusOr<ExitState> ChildProcess::wait(TimePoint deadline) {
  for (;;) {
    TY_ASSIGN_OR_RETURN(const std::optional<ExitState> exit, poll());
    if (exit.has_value()) return *exit;
    const TimePoint now = systemClock().now();
    if (now >= deadline) {
      return absl::DeadlineExceededError(fmt::format("process {} still runs", state_->pid));
    }
    if (state_->pid_fd.valid()) {
      waitReadable(state_->pid_fd.get(), deadline);
    } else {
      pollUntil({}, std::min(deadline, now + std::chrono::milliseconds(10)));
    }
  }
}

void ChildProcess::release() && {
  TY_CHECK(state_->reader == nullptr, "the output of a child is read by its parent");
  state_.reset();
}

StatusOr<ExitState> ChildProcess::stop(Duration grace) {
  TY_ASSIGN_OR_RETURN(const std::optional<ExitState> exit, poll());
  if (exit.has_value()) return *exit;
  TY_RETURN_IF_ERROR(signal(SIGTERM));
  StatusOr<ExitState> ended = wait(systemClock().now() + grace);
  if (ended.ok() || !absl::IsDeadlineExceeded(ended.status())) return ended;
  TY_RETURN_IF_ERROR(signal(SIGKILL));
  return wait(systemClock().now() + std::chrono::seconds(10));
}

}  // namespace trainyard
