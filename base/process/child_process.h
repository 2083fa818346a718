// Child processes: started without fork(), reaped exactly once, stopped with a deadline.
//
// A child is started through vfork, the same way as posix_spawn does it (no pthread_atfork
// handlers, no copy of the address space, so it is safe beside gRPC's threads), because posix_spawn
// cannot set PR_SET_PDEATHSIG before the exec. Every descriptor above 2 is closed in the child but
// `keep_fds`.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "base/process/unique_fd.h"

namespace trainyard {

// How a process ended.
struct ExitState {
  int code = 0;    // exit code; 0 when a signal ended it
  int signal = 0;  // 0: it exited by itself
  bool operator==(const ExitState&) const = default;
};
// "exit code 3", "killed by signal 9 (Killed)"
std::string toString(const ExitState& exit);

struct SpawnOptions {
  std::vector<std::string> argv = {};  // argv[0]: a path, or a name that is looked up in PATH
  // The whole environment as "NAME=value"; unset: that of this process.
  std::optional<std::vector<std::string>> env = {};
  // Beside those, and in the place of those of the same name.
  std::vector<std::string> more_env = {};
  std::string cwd = {};  // "": that of this process

  // Standard output and error: at most one of the two, neither: inherited. Standard input is always
  // /dev/null.
  std::string output_file = {};  // appended to (O_APPEND, created with 0644)
  // Called from a thread of the ChildProcess with each line (without its end), also an unfinished
  // last one; lines above 64 KiB come in pieces.
  std::function<void(std::string_view line)> on_line = {};
  bool inherit_error = false;  // standard error stays that of this process in any case

  bool new_process_group = false;  // Ctrl-C at the terminal does not reach it; signalGroup() does
  bool new_session = false;        // includes a new process group
  // SIGKILL for the child when the THREAD that spawned it ends (so: when this process ends, if
  // spawned from a thread that lives as long as the process, such as main's). Survives the child's
  // exec, does not reach the child's own children.
  bool die_with_spawning_thread = false;
  std::vector<int> keep_fds = {};  // stay open in the child under the same numbers
};

// Not thread-safe. The destructor kills (SIGKILL) and reaps a child that still runs. Movable.
class ChildProcess {
 public:
  // INVALID_ARGUMENT for an empty argv; NOT_FOUND, PERMISSION_DENIED etc. naming the program or the
  // output file when the child could not be started (then nothing was).
  static StatusOr<ChildProcess> spawn(const SpawnOptions& options);

  ChildProcess(ChildProcess&&) noexcept;
  ChildProcess& operator=(ChildProcess&&) noexcept;
  ~ChildProcess();

  pid_t pid() const;
  // Readable once the child has ended; -1 where the kernel has no pidfd.
  int pidFd() const;

  // Reaps the child if it has ended; afterwards always the same answer. Never blocks.
  StatusOr<std::optional<ExitState>> poll();
  // FAILED_PRECONDITION when the child has been reaped (its pid may belong to another by now).
  Status signal(int number);
  // The same for the whole process group of a child started with new_process_group or new_session;
  // possible after the child was reaped too, for what it left behind.
  Status signalGroup(int number);
  // Waits for the end of the child. DEADLINE_EXCEEDED when it still runs at `deadline`.
  StatusOr<ExitState> wait(TimePoint deadline);
  // SIGTERM, up to `grace` of waiting, then SIGKILL. Returns how it ended.
  StatusOr<ExitState> stop(Duration grace);
  // Lets the child live on: the destructor does nothing any more. For a child that is to outlive
  // this process; until then nobody reaps it. Not for a child with on_line.
  void release() &&;

 private:
  struct State;
  explicit ChildProcess(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Makes this process the parent of orphaned descendants (PR_SET_CHILD_SUBREAPER).
Status becomeSubreaper();
// Reaps every ended child of this process whose pid is not in `ours` (orphans adopted by a
// subreaper). Call after polling ours. Returns how many.
int reapOrphans(const std::vector<pid_t>& ours);
// SIGKILL for every child of this process, and for those that become its children thereby (with
// becomeSubreaper() that is every descendant), until none is left or `deadline` has come. Reaps
// them: afterwards no ChildProcess may be waited for. Returns whether none is left.
bool killDescendants(TimePoint deadline);

// For a child's main: SIGKILL for this process when its parent's spawning thread ends. False when
// the parent is not `expected_parent` any more (the caller should end at once); 0: do not check.
bool dieWithParent(pid_t expected_parent);

}  // namespace trainyard
