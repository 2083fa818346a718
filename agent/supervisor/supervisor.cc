#include "agent/supervisor/supervisor.h"

#include <algorithm>
#include <csignal>

#include "fmt/format.h"

namespace trainyard::agent {

std::vector<SupervisorAction> Supervisor::handle(const SupervisorEvent& event, TimePoint now) {
  if (state_ == State::kDone) return {};
  return std::visit([&](const auto& e) { return on(e, now); }, event);
}

Supervisor::Actions Supervisor::start(TimePoint now) {
  state_ = State::kRunning;
  started_at_ = now;
  wake_at_ = TimePoint::max();
  ++view_.start;
  return {StartChild{view_.start}};
}

Supervisor::Actions Supervisor::backOff(TimePoint now) {
  const bool ran_long = now - started_at_ >= options_.reset_after;
  const bool first = backoff_ == Duration(0) || ran_long;
  backoff_ = first ? options_.first_backoff : std::min(2 * backoff_, options_.max_backoff);
  state_ = State::kBackingOff;
  wake_at_ = now + backoff_;
  return {PublishView{}};
}

Supervisor::Actions Supervisor::finish(int exit_code) {
  state_ = State::kDone;
  wake_at_ = TimePoint::max();
  return {PublishView{}, ExitAgent{exit_code}};
}

Supervisor::Actions Supervisor::on(const MembershipReady&, TimePoint now) {
  return state_ == State::kWaiting ? start(now) : Actions{};
}

Supervisor::Actions Supervisor::on(const ChildStarted& event, TimePoint now) {
  view_.child = "Running";
  view_.pids = event.pids;
  return {PublishView{}};
}

Supervisor::Actions Supervisor::on(const StartFailed& event, TimePoint now) {
  view_.child = "Exited";
  view_.last_exit_code = kExitUsage;
  view_.last_signal = 0;
  if (failureClass(event.error) == FailureClass::kPermanent) return finish(kExitUsage);
  view_.last_exit_code = kExitFailure;
  return backOff(now);
}

Supervisor::Actions Supervisor::on(const ChildExited& event, TimePoint now) {
  view_.child = "Exited";
  view_.pids.clear();
  view_.last_exit_code = event.exit.code;
  view_.last_signal = event.exit.signal;
  if (state_ == State::kStopping) return finish(stop_code_);
  if (state_ == State::kRestarting) {
    ++view_.planned_starts;
    return start(now);
  }
  const bool last =
      event.exit == ExitState{} || options_.final_exits(event.exit) || !options_.restarts;
  return last ? finish(shellExitCode(event.exit.code, event.exit.signal)) : backOff(now);
}

Supervisor::Actions Supervisor::on(const ChildSilent&, TimePoint) {
  if (state_ != State::kRunning || view_.pids.empty()) return {};
  return {SignalChild{
      SIGKILL, fmt::format("has not reported for {:.0f} s", toSeconds(options_.silence_limit))}};
}

Supervisor::Actions Supervisor::on(const MembersChanged&, TimePoint now) {
  if (state_ != State::kRunning || view_.pids.empty()) return {};
  switch (options_.on_change) {
    case SupervisorOptions::OnChange::kNone:
      return {};
    case SupervisorOptions::OnChange::kSignal:
      return {SignalChild{.signal = kChangeSignal, .group = false}};
    case SupervisorOptions::OnChange::kRestart:
      break;
  }
  state_ = State::kRestarting;
  wake_at_ = now + options_.grace;
  return {SignalChild{SIGTERM}};
}

Supervisor::Actions Supervisor::on(const StopRequested& event, TimePoint now) {
  return stop(event.signal, 128 + event.signal, options_.grace, now);
}

Supervisor::Actions Supervisor::on(const LauncherGone&, TimePoint now) {
  return stop(SIGTERM, kExitLauncherGone, options_.orphan_grace, now);
}

Supervisor::Actions Supervisor::stop(int signal, int exit_code, Duration grace, TimePoint now) {
  if (state_ == State::kWaiting || state_ == State::kBackingOff) return finish(exit_code);
  if (state_ != State::kStopping) {
    state_ = State::kStopping;
    stop_code_ = exit_code;
    wake_at_ = now + grace;
  } else {
    wake_at_ = std::min(wake_at_, now + grace);
  }
  return {SignalChild{signal}};
}

Supervisor::Actions Supervisor::on(const TimePassed&, TimePoint now) {
  if (now < wake_at_) return {};
  if (state_ == State::kBackingOff) return start(now);
  if (state_ != State::kStopping && state_ != State::kRestarting) return {};
  // Again after a while, in case the first one met a process that was about to become another.
  wake_at_ = now + options_.orphan_grace;
  return {SignalChild{SIGKILL, "did not end in time"}};
}

}  // namespace trainyard::agent
