// The processes of a task's program, which live and die together: one, or as many as the job has in
// each pod.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "agent/supervisor/final_exits.h"
#include "base/core/clock.h"
#include "base/core/status.h"
#include "base/process/child_process.h"

namespace trainyard::agent {

// One process to start, and what the log calls it.
struct NamedProcess {
  std::string name;
  SpawnOptions options;
};

// Not thread-safe. The destructor kills those that still run. Movable.
class ProcessSet {
 public:
  // All of them, in the order of `processes`, or none: the error of the first that could not be
  // started. Each is to lead a process group.
  static StatusOr<ProcessSet> spawn(const std::vector<NamedProcess>& processes,
                                    const FinalExits& final_exits);

  // Of all that were started, also of those that have ended.
  std::vector<pid_t> pids() const;
  std::size_t size() const { return members_.size(); }
  bool running(std::size_t process) const { return !members_[process].exit.has_value(); }

  // Looks who has ended; never blocks. When one has failed the others are killed: at once, or,
  // where it is final, after kEndTime, in which they may come to the same
  // end. The program's end once all have ended: that of the first that failed, else exit code 0.
  std::optional<ExitState> poll(TimePoint now);
  // To those that run, or with `group` to all that they have started too. After a signal other than
  // SIGHUP nobody is killed because another has ended.
  void signal(int number, bool group);

  static constexpr Duration kEndTime = std::chrono::seconds(5);

 private:
  struct Member {
    std::string name;
    ChildProcess process;
    std::optional<ExitState> exit = {};
  };
  explicit ProcessSet(const FinalExits& final_exits) : final_exits_(final_exits) {}
  void look(Member& member, TimePoint now);

  FinalExits final_exits_;
  std::vector<Member> members_;
  std::optional<ExitState> failure_;  // the first
  TimePoint kill_at_ = TimePoint::max();
  bool ending_ = false;  // they were asked to end
};

}  // namespace trainyard::agent
