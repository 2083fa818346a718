#include "agent/supervisor/task_loop.h"

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "base/core/log.h"
#include "base/core/strings.h"
#include "base/process/poll.h"
#include "fmt/format.h"

namespace trainyard::agent {
namespace {

constexpr Duration kFilePollInterval = std::chrono::milliseconds(200);
// While there is no membership to start the program with, all tasks of the job wait for it.
constexpr Duration kStartPollInterval = std::chrono::milliseconds(20);

std::string textOf(const Status& status) {
  return std::string(fromAbsl(status.message()));
}

}  // namespace

TaskLoop::TaskLoop(TaskLoopParts parts, const SupervisorOptions& options)
    : parts_(std::move(parts)), supervisor_(options), options_(options) {}

int TaskLoop::run() {
  parts_.publish(supervisor_.view());
  while (!exit_code_.has_value()) {
    readMembership();
    if (parts_.read_tells) parts_.read_tells();
    readChild();
    readSignals();
    readLauncher();
    if (parts_.clock->now() >= supervisor_.wakeAt()) feed(TimePassed{});
    readReports();
    if (!exit_code_.has_value()) waitForEvents();
  }
  return *exit_code_;
}

// A process that has ended well is not waited for.
bool TaskLoop::isSilent() {
  if (!parts_.reports) return false;
  const std::vector<std::uint64_t> reports = parts_.reports();
  while (silence_.size() < reports.size()) silence_.emplace_back(options_.silence_limit);
  bool silent = false;
  for (std::size_t p = 0; p < reports.size(); ++p) {
    const bool runs = child_ && p < child_->size() && child_->running(p);
    silent |= silence_[p].observe(runs ? reports[p] : 0, parts_.clock->now());
  }
  return silent;
}

void TaskLoop::readReports() {
  if (isSilent()) feed(ChildSilent{});
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
  for (const int fd : parts_.tells) fds.push_back({.fd = fd, .events = POLLIN, .revents = 0});
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
    next_file_poll_ = now + (supervisor_.waiting() ? kStartPollInterval : kFilePollInterval);
    if (const auto read = parts_.file->poll()) {
      const Status status = read->ok() ? parts_.store->adopt(**read).status() : read->status();
      if (!status.ok()) TY_ERROR("agent: refused: {}", textOf(status));
    }
  }
  tellChild();
  if (!supervisor_.waiting()) return;
  noteMissing();
  if (missing_.empty()) feed(MembershipReady{});
}

void TaskLoop::tellChild() {
  if (!parts_.tell || !child_.has_value()) return;
  const auto membership = parts_.store->newest();
  if (membership->revision() == told_revision_) return;
  if (!missingFor(*membership, parts_.self).empty()) return;  // a later one will be complete
  StatusOr<std::string> told = parts_.tell();
  if (!told.ok()) {
    TY_ERROR("agent: {}", textOf(told.status()));
    return;
  }
  told_revision_ = membership->revision();
  if (*told == told_) return;
  TY_INFO("agent: other members, by revision {}", told_revision_);
  told_ = *std::move(told);
  feed(MembersChanged{});
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
    if (const std::optional<ExitState> exit = child_->poll(parts_.clock->now())) {
      child_.reset();
      if (parts_.read_tells) parts_.read_tells();  // its last words
      if (const Status held = parts_.port->holdAgain(); !held.ok()) {
        TY_DEBUG("agent: {}", textOf(held));
      }
      feed(ChildExited{*exit});
    }
  }
  std::vector<pid_t> ours;
  if (child_.has_value()) ours = child_->pids();
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
      TY_WARN("agent: process {} {}: kills it", fmt::join(supervisor_.view().pids, ", "),
              signal->why);
    }
    if (child_.has_value()) child_->signal(signal->signal, signal->group);
  } else if (std::holds_alternative<PublishView>(action)) {
    parts_.publish(supervisor_.view());
  } else if (const auto* exit = std::get_if<ExitAgent>(&action)) {
    exit_code_ = exit->code;
  }
}

void TaskLoop::startChild(std::uint32_t start) {
  if (parts_.tell) {
    // Before the program is prepared: of what comes in between it is told once more.
    told_revision_ = parts_.store->newest()->revision();
    told_ = parts_.tell().value_or("");
  }
  const StatusOr<std::vector<NamedProcess>> program = parts_.prepare(start);
  if (!program.ok()) {
    TY_ERROR("agent: {}", textOf(program.status()));
    feed(StartFailed{program.status()});
    return;
  }
  parts_.port->release();
  StatusOr<ProcessSet> child = ProcessSet::spawn(*program, options_.final_exits);
  if (!child.ok()) {
    TY_ERROR("agent: {}", textOf(child.status()));
    feed(StartFailed{child.status()});
    return;
  }
  child_ = std::move(*child);
  const std::vector<pid_t> pids = child_->pids();
  TY_INFO("agent: start {}: process {}", start, fmt::join(pids, ", "));
  feed(ChildStarted{pids});
}

}  // namespace trainyard::agent
