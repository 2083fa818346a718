#include "agent/supervisor/process_set.h"

#include <algorithm>
#include <csignal>

#include "base/core/log.h"
#include "base/core/strings.h"

namespace trainyard::agent {

StatusOr<ProcessSet> ProcessSet::spawn(const std::vector<NamedProcess>& processes,
                                       const FinalExits& final_exits) {
  ProcessSet set(final_exits);
  for (const NamedProcess& process : processes) {
    TY_ASSIGN_OR_RETURN(ChildProcess child, ChildProcess::spawn(process.options));
    set.members_.push_back({process.name, std::move(child)});
  }
  return set;
}

std::vector<pid_t> ProcessSet::pids() const {
  std::vector<pid_t> pids;
  for (const Member& member : members_) pids.push_back(member.process.pid());
  return pids;
}

void ProcessSet::look(Member& member, TimePoint now) {
  const StatusOr<std::optional<ExitState>> polled = member.process.poll();
  if (!polled.ok()) TY_ERROR("agent: {}", std::string(fromAbsl(polled.status().message())));
  if (!polled.ok() || !polled->has_value()) return;
  member.exit = **polled;
  TY_INFO("agent: {}process {} ended: {}", member.name.empty() ? "" : member.name + ": ",
          member.process.pid(), toString(*member.exit));
  // What it started itself must not meet its successor.
  (void)member.process.signalGroup(SIGKILL);
  if (failure_ || *member.exit == ExitState{}) return;
  failure_ = member.exit;
  kill_at_ = final_exits_(*member.exit) ? now + kEndTime : now;
}

std::optional<ExitState> ProcessSet::poll(TimePoint now) {
  for (Member& member : members_) {
    if (!member.exit) look(member, now);
  }
  const auto runs = [](const Member& member) { return !member.exit.has_value(); };
  if (std::none_of(members_.begin(), members_.end(), runs)) return failure_.value_or(ExitState{});
  if (!ending_ && now >= kill_at_) {
    kill_at_ = TimePoint::max();
    TY_WARN("agent: kills the other processes of the task");
    signal(SIGKILL, /*group=*/true);
  }
  return std::nullopt;
}

void ProcessSet::signal(int number, bool group) {
  if (number != SIGHUP) ending_ = true;
  for (Member& member : members_) {
    if (member.exit) continue;
    // Refused only when it has just ended; the next look sees that.
    (void)(group ? member.process.signalGroup(number) : member.process.signal(number));
  }
}

}  // namespace trainyard::agent
