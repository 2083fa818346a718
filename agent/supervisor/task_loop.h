// Carries out what the Supervisor decides: the agent's main loop.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "agent/membership/membership_file.h"
#include "agent/membership/membership_store.h"
#include "agent/supervisor/port_holder.h"
#include "agent/supervisor/process_set.h"
#include "agent/supervisor/silence_watch.h"
#include "agent/supervisor/supervisor.h"
#include "base/core/clock.h"
#include "base/process/child_process.h"
#include "base/process/pipe.h"
#include "base/process/signals.h"

namespace trainyard::agent {

// What the loop works with; all outlives it.
struct TaskLoopParts {
  const Clock* clock = nullptr;
  SignalWaiter* signals = nullptr;  // SIGTERM, SIGINT, SIGCHLD
  int launcher_fd = -1;             // end of file: the launcher is gone; -1: there is none
  const WakeUp* pushed = nullptr;   // woken when `store` took a membership over
  MembershipStore* store = nullptr;
  MembershipSource* file = nullptr;
  PortHolder* port = nullptr;
  TaskIdentity self;
  // The program's processes, at least one; called before each start, when the membership is
  // complete.
  std::function<StatusOr<std::vector<NamedProcess>>(std::uint32_t start)> prepare;
  // Writes the newest membership, which is complete, where the program reads it, and returns what a
  // program that starts now is told of the others: one that was told something else cannot know
  // them. Empty: the program hears of changes by itself.
  std::function<StatusOr<std::string>()> tell = {};
  // The view has changed. Called before the program's next start and before run() returns.
  std::function<void(const ChildView&)> publish;
  // The program says that it is ready; looked at each round. May be empty.
  std::function<bool()> ready = {};
  // Readable while the program has told something of itself, and what reads it. Called also when
  // the program has ended, before that is published. May be empty.
  std::vector<int> tells = {};
  std::function<void()> read_tells = {};
  // How often each process of the running program has reported; 0 while none runs. May be empty.
  std::function<std::vector<std::uint64_t>()> reports = {};
};

// One thread, main's: the program gets SIGKILL from the kernel when this thread ends, whatever ends
// it.
class TaskLoop {
 public:
  TaskLoop(TaskLoopParts parts, const SupervisorOptions& options);

  // Until the program has ended for good or the agent was told to stop. Returns the agent's exit
  // code.
  int run();

 private:
  // Waits for the next event source, at most until something is due.
  void waitForEvents();
  void readSignals();
  void readLauncher();
  void readReports();
  bool isSilent();
  void readMembership();
  void tellChild();
  void readChild();
  void feed(const SupervisorEvent& event);
  void perform(const SupervisorAction& action);
  void startChild(std::uint32_t start);
  void noteMissing();

  TaskLoopParts parts_;
  Supervisor supervisor_;
  const SupervisorOptions options_;
  std::vector<SilenceWatch> silence_;  // by process
  std::optional<ProcessSet> child_;
  std::optional<int> exit_code_;
  TimePoint next_file_poll_{};
  std::string missing_;  // logged last
  std::int64_t told_revision_ = 0;
  std::string told_;  // the running program, at its start or since
  bool launcher_gone_ = false;
  bool published_ready_ = false;
};

}  // namespace trainyard::agent
