#include "runtime/client/work_queue.h"

#include <utility>
#include <vector>

namespace trainyard::runtime::client {
namespace {

// In place of for ever: a wait without a limit is a symbol that only the newest standard libraries
// have, and the library serves older ones.
constexpr Duration kLong = std::chrono::hours(1);
constexpr Duration kLookEvery = std::chrono::milliseconds(50);
thread_local bool on_caller = false;

}  // namespace

bool WorkQueue::onCaller() {
  return on_caller;
}

WorkQueue::~WorkQueue() {
  stop(absl::CancelledError("the group has ended"), TimePoint::max());
  join();
}

void WorkQueue::join() {
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<Work> WorkQueue::push(Act act, bool wake) {
  auto work = std::make_shared<Work>(monitor_);
  Status ended;
  {
    const std::lock_guard lock(monitor_->mutex);
    ended = ended_;
    if (!ending_) {
      entries_.push_back({work, std::move(act)});
      if (wake && !thread_.joinable()) thread_ = std::thread([this] { loop(); });
    }
  }
  if (!ended.ok()) {
    work->finish(ended);
  } else if (wake) {
    monitor_->changed.notify_all();
  }
  return work;
}

std::shared_ptr<Work> WorkQueue::add(Act act) {
  return push(std::move(act), true);
}

Status WorkQueue::run(Act act) {
  {
    std::unique_lock lock(monitor_->mutex);
    if (!ending_ && !running_ && entries_.empty()) return runAtOnce(act, lock);
  }
  const std::shared_ptr<Work> work = push(std::move(act), false);
  // What is not begun cannot be left: it refers to what the caller has.
  help(*work, [] { return false; });
  return work->status();
}

bool WorkQueue::wait(const Work& work, TimePoint deadline) {
  std::unique_lock lock(monitor_->mutex);
  return monitor_->changed.wait_until(lock, deadline, [&] { return work.doneLocked(); });
}

bool WorkQueue::help(const Work& work, const std::function<bool()>& interrupted) {
  std::unique_lock lock(monitor_->mutex);
  while (!work.doneLocked()) {
    if (!running_ && !entries_.empty()) {
      on_caller = true;
      runFirst(lock);
      on_caller = false;
      continue;
    }
    if (monitor_->changed.wait_for(lock, kLookEvery) != std::cv_status::timeout) continue;
    lock.unlock();
    const bool ends = interrupted();
    lock.lock();
    if (ends) return work.doneLocked();
  }
  return true;
}

void WorkQueue::runFirst(std::unique_lock<std::mutex>& lock) {
  Entry entry = std::move(entries_.front());
  entries_.pop_front();
  running_ = true;
  lock.unlock();
  Status status = entry.act();
  entry.act = nullptr;
  lock.lock();
  running_ = false;
  lock.unlock();
  // Wakes the others too, who may carry out the next.
  entry.work->finish(std::move(status));
  lock.lock();
}

Status WorkQueue::runAtOnce(const Act& act, std::unique_lock<std::mutex>& lock) {
  running_ = true;
  lock.unlock();
  on_caller = true;
  Status status = act();
  on_caller = false;
  lock.lock();
  running_ = false;
  lock.unlock();
  // Who has given something meanwhile may wait to carry it out.
  monitor_->changed.notify_all();
  return status;
}

void WorkQueue::loop() {
  std::unique_lock lock(monitor_->mutex);
  while (!ending_) {
    if (running_ || entries_.empty()) {
      monitor_->changed.wait_for(lock, kLong);
    } else {
      runFirst(lock);
    }
  }
}

bool WorkQueue::stop(const Status& why, TimePoint deadline) {
  std::deque<Entry> dropped;
  {
    const std::lock_guard lock(monitor_->mutex);
    ending_ = true;
    if (ended_.ok()) ended_ = why;
    dropped = std::exchange(entries_, {});
  }
  monitor_->changed.notify_all();
  for (const Entry& entry : dropped) entry.work->finish(why);
  std::unique_lock lock(monitor_->mutex);
  while (running_ && systemClock().now() < deadline) monitor_->changed.wait_for(lock, kLookEvery);
  return !running_;
}

bool WorkQueue::whileIdle(const std::function<void()>& act) {
  {
    const std::lock_guard lock(monitor_->mutex);
    if (running_) return false;
    running_ = true;
  }
  act();
  {
    const std::lock_guard lock(monitor_->mutex);
    running_ = false;
  }
  monitor_->changed.notify_all();
  return true;
}

}  // namespace trainyard::runtime::client
