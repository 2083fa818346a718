#include "agent/supervisor/task_loop.h"

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "base/core/log.h"
#include "base/core/strings.h"
#include "base/process/poll.h"

namespace trainyard::agent {
namespace {

constexpr Duration kFilePollInterval = std::chrono::milliseconds(200);

std::string textOf(const Status& status) {
  return std::string(fromAbsl(status.message()));
}

}  // namespace

TaskLoop::TaskLoop(TaskLoopParts parts, const SupervisorOptions& options)
    : parts_(std::move(parts)), supervisor_(options), silence_(options.silence_limit) {}

int TaskLoop::run() {
  parts_.publish(supervisor_.view());
  while (!exit_code_.has_value()) {
    readMembership();
    readChild();
    readSignals();
    readLauncher();
    if (parts_.clock->now() >= supervisor_.wakeAt()) feed(TimePassed{});
    readReports();
    if (!exit_code_.has_value()) waitForEvents();
  }
  return *exit_code_;
}

void TaskLoop::readReports() {
  if (parts_.reports && silence_.observe(parts_.reports(), parts_.clock->now())) {
    feed(ChildSilent{});
  }
  // Whoever started this agent learns of it from the file.
  if (!parts_.ready || parts_.ready() == published_ready_) return;
  published_ready_ = !published_ready_;
  parts_.publish(supervisor_.view());
}

void TaskLoop::waitForEvents() {
  std::vector<pollfd> fds = {{.fd = parts_.signals->fd(), .events = POLLIN, .revents = 0},
                             {.fd = parts_.pushed->fd(), .events = POLLIN, .revents = 0}};
  if (parts_.launcher_fd >= 0 && !launcher_gone_) {
    fds.push_back({.fd = parts_.launcher_fd, .events = POLLIN, .revents = 0});
  }
  pollUntil(fds, std::min(supervisor_.wakeAt(), next_file_poll_));
}

void TaskLoop::readSignals() {
  while (const std::optional<int> number = parts_.signals->next()) {
    if (*number == SIGCHLD) continue;  // readChild() looks anyway
    TY_INFO("agent: signal {}: stops", *number);
    feed(StopRequested{*number});
  }
}

void TaskLoop::readLauncher() {
  if (parts_.launcher_fd < 0 || launcher_gone_) return;
  if (!waitReadable(parts_.launcher_fd, parts_.clock->now())) return;
  char ignored[64];
  const ssize_t n = ::read(parts_.launcher_fd, ignored, sizeof ignored);
  if (n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN))) return;
  launcher_gone_ = true;
  TY_WARN("agent: the launcher is gone: stops");
  feed(LauncherGone{});
}

void TaskLoop::readMembership() {
  parts_.pushed->clear();
  const TimePoint now = parts_.clock->now();
  if (now >= next_file_poll_) {
    next_file_poll_ = now + kFilePollInterval;
    if (const auto read = parts_.file->poll()) {
      const Status status = read->ok() ? parts_.store->adopt(**read).status() : read->status();
      if (!status.ok()) TY_ERROR("agent: refused: {}", textOf(status));
    }
  }
  if (!supervisor_.waiting()) return;
  noteMissing();
  if (missing_.empty()) feed(MembershipReady{});
}

void TaskLoop::noteMissing() {
  const auto membership = parts_.store->newest();
  std::string missing = membership == nullptr ? std::string("waits for the membership")
                                              : missingFor(*membership, parts_.self);
  if (!missing.empty() && missing != missing_) TY_INFO("agent: {}", missing);
  missing_ = std::move(missing);
}

void TaskLoop::readChild() {
  if (child_.has_value()) {
    const StatusOr<std::optional<ExitState>> polled = child_->poll();
    if (!polled.ok()) TY_ERROR("agent: {}", textOf(polled.status()));
    if (polled.ok() && polled->has_value()) {
      const ExitState exit = **polled;
      TY_INFO("agent: process {} ended: {}", child_->pid(), toString(exit));
      // What it started itself must not meet its successor.
      (void)child_->signalGroup(SIGKILL);
      child_.reset();
      if (const Status held = parts_.port->holdAgain(); !held.ok()) {
        TY_DEBUG("agent: {}", textOf(held));
      }
      feed(ChildExited{exit});
    }
  }
  std::vector<pid_t> ours;
  if (child_.has_value()) ours.push_back(child_->pid());
  reapOrphans(ours);
}

void TaskLoop::feed(const SupervisorEvent& event) {
  for (const SupervisorAction& action : supervisor_.handle(event, parts_.clock->now())) {
    perform(action);
  }
}

void TaskLoop::perform(const SupervisorAction& action) {
  if (const auto* start = std::get_if<StartChild>(&action)) {
    startChild(start->start);
  } else if (const auto* signal = std::get_if<SignalChild>(&action)) {
    if (signal->signal == SIGKILL) {
      TY_WARN("agent: process {} {}: kills it", supervisor_.view().pid, signal->why);
    }
    // Refused only when the child has just ended; the next readChild() sees that.
    if (child_.has_value()) (void)child_->signalGroup(signal->signal);
  } else if (std::holds_alternative<PublishView>(action)) {
    parts_.publish(supervisor_.view());
  } else if (const auto* exit = std::get_if<ExitAgent>(&action)) {
    exit_code_ = exit->code;
  }
}

void TaskLoop::startChild(std::uint32_t start) {
  const StatusOr<SpawnOptions> options = parts_.prepare(start);
  if (!options.ok()) {
    TY_ERROR("agent: {}", textOf(options.status()));
    feed(StartFailed{options.status()});
    return;
  }
  parts_.port->release();
  StatusOr<ChildProcess> child = ChildProcess::spawn(*options);
  if (!child.ok()) {
    TY_ERROR("agent: {}", textOf(child.status()));
    feed(StartFailed{child.status()});
    return;
  }
  child_ = std::move(*child);
  TY_INFO("agent: start {}: process {}", start, child_->pid());
  feed(ChildStarted{child_->pid()});
}

}  // namespace trainyard::agent
