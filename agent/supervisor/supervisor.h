// When the task's program is started, restarted, stopped and given up: a state machine without
// processes, files or clock. The caller carries out the actions in order and feeds what comes of
// them back.
//
//   1 Waiting ----membership----> 2 Running     a first start
//
//   2 Running --mendable exit---> 3 BackingOff  killed by a signal, or a code that a restart mends
//
//   2 Running ------silence-----> 2 Running     SIGKILL; the exit follows
//
//   3 BackingOff ----time-------> 2 Running     the next start
//
//   2 Running ---final exit-----> 5 Done        0 or a permanent code, or any without restarts
//
//   2 Running ---stop request---> 4 Stopping    signal forwarded; SIGKILL after the grace time
//
//   4 Stopping -----exit--------> 5 Done        128 + the signal of the request
//
//   1, 3 --------stop request---> 5 Done
//
//   2 Running ---other members--> 6 Restarting  SIGTERM, SIGKILL after the grace time; the exit, of
//                                               whatever kind, starts it again at once
#pragma once

#include <sys/types.h>

#include <csignal>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "agent/supervisor/final_exits.h"
#include "base/core/clock.h"
#include "base/core/status.h"
#include "base/process/child_process.h"

namespace trainyard::agent {

struct SupervisorOptions {
  Duration first_backoff = std::chrono::milliseconds(200);
  Duration max_backoff = std::chrono::seconds(5);  // it doubles up to here
  Duration reset_after =
      std::chrono::seconds(60);               // of running: the next back-off is the first again
  Duration grace = std::chrono::seconds(10);  // between the forwarded signal and SIGKILL
  Duration orphan_grace = std::chrono::seconds(2);  // the same when the launcher is gone
  // A program that has reported and then is silent this long hangs. Well above the coordinator's
  // deadline: one that was only slow may come back with all it holds.
  Duration silence_limit = std::chrono::seconds(30);
  bool restarts = true;  // false: every exit is final
  FinalExits final_exits;
  // What a running program gets when it is told other members than it was started with. None: our
  // own runtime hears of them otherwise.
  enum class OnChange { kNone, kRestart, kSignal };
  OnChange on_change = OnChange::kNone;
};

// To a program that asked for it: the members have changed.
inline constexpr int kChangeSignal = SIGHUP;

// Exit code of the agent when its launcher is gone: as if hung up on (128 + SIGHUP).
inline constexpr int kExitLauncherGone = 129;

struct MembershipReady {};  // the membership holds all that the program needs
struct ChildStarted {
  std::vector<pid_t> pids;  // of its processes
};                          // answers StartChild
struct StartFailed {
  Status error;
};  // answers StartChild
struct ChildExited {
  ExitState exit;
};
struct ChildSilent {};     // see SilenceWatch
struct MembersChanged {};  // what the running program was told is true no more
struct StopRequested {
  int signal = 0;
};
struct LauncherGone {};
struct TimePassed {};  // now >= wakeAt()
using SupervisorEvent =
    std::variant<MembershipReady, ChildStarted, StartFailed, ChildExited, ChildSilent,
                 MembersChanged, StopRequested, LauncherGone, TimePassed>;

struct StartChild {
  std::uint32_t start = 0;
};  // as its start-th life, from 1
struct SignalChild {
  int signal = 0;
  std::string why = "";  // of a SIGKILL, for the log: "it ..."
  bool group = true;     // all processes of the task, else the program alone
};
struct PublishView {};  // the view has changed
struct ExitAgent {
  int code = 0;
};  // always the last action
using SupervisorAction = std::variant<StartChild, SignalChild, PublishView, ExitAgent>;

// The child as others see it: the program, of one or several processes that end as one.
struct ChildView {
  std::string child = "Waiting";     // Waiting | Running | Exited
  std::uint32_t start = 0;           // starts so far
  std::uint32_t planned_starts = 0;  // of these, because the members changed
  std::vector<pid_t> pids;           // of its processes; empty: none runs
  int last_exit_code = 0;            // of the last child that ended
  int last_signal = 0;
};

class Supervisor {
 public:
  explicit Supervisor(const SupervisorOptions& options) : options_(options) {}

  std::vector<SupervisorAction> handle(const SupervisorEvent& event, TimePoint now);
  // When TimePassed is due; TimePoint::max(): never.
  TimePoint wakeAt() const { return wake_at_; }
  const ChildView& view() const { return view_; }
  bool waiting() const { return state_ == State::kWaiting; }

 private:
  enum class State { kWaiting, kRunning, kBackingOff, kRestarting, kStopping, kDone };
  using Actions = std::vector<SupervisorAction>;

  Actions on(const MembershipReady& event, TimePoint now);
  Actions on(const ChildStarted& event, TimePoint now);
  Actions on(const StartFailed& event, TimePoint now);
  Actions on(const ChildExited& event, TimePoint now);
  Actions on(const ChildSilent& event, TimePoint now);
  Actions on(const MembersChanged& event, TimePoint now);
  Actions on(const StopRequested& event, TimePoint now);
  Actions on(const LauncherGone& event, TimePoint now);
  Actions on(const TimePassed& event, TimePoint now);
  Actions start(TimePoint now);
  Actions backOff(TimePoint now);
  Actions stop(int signal, int exit_code, Duration grace, TimePoint now);
  Actions finish(int exit_code);

  const SupervisorOptions options_;
  State state_ = State::kWaiting;
  ChildView view_;
  TimePoint started_at_{};
  Duration backoff_ = Duration(0);  // the last one; 0: none yet
  TimePoint wake_at_ = TimePoint::max();
  int stop_code_ = 0;  // exit code once the stopping child has ended
};

}  // namespace trainyard::agent
