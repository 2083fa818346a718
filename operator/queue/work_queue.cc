#include "operator/queue/work_queue.h"

#include <algorithm>
#include <string_view>

#include "base/core/check.h"
#include "base/core/strings.h"

namespace trainyard::control {

namespace {

// Whose turn a key takes.
std::string_view namespaceOf(std::string_view key) {
  return splitFirst(key, '/').first;
}

}  // namespace

WorkQueue::WorkQueue(const Clock& clock, QueueOptions options)
    : clock_(clock), options_(std::move(options)) {}

void WorkQueue::add(const std::string& key) {
  const Lock lock(mutex_);
  addLocked(key);
}

void WorkQueue::addLocked(const std::string& key) {
  if (shut_down_) return;
  ++adds_;
  if (dirty_.contains(key)) return;
  if (const auto rest = rests_until_.find(key); rest != rests_until_.end()) {
    if (clock_.now() < rest->second) return addAtLocked(key, rest->second);
  }
  dirty_.insert(key);
  if (working_.contains(key)) return;  // done() puts it in line
  lineUpLocked(key);
}

void WorkQueue::lineUpLocked(const std::string& key) {
  if (options_.observer) options_.observer->waits(key);
  const std::string_view ns = namespaceOf(key);
  auto line = ready_.find(ns);
  if (line == ready_.end()) {
    line = ready_.emplace(ns, std::deque<std::string>()).first;
    turns_.emplace_back(ns);
  }
  line->second.push_back(key);
  ++due_;
  changed_.notify_one();
}

void WorkQueue::addAfter(const std::string& key, Duration delay) {
  const Lock lock(mutex_);
  if (delay <= Duration::zero()) {
    addLocked(key);
  } else {
    addAtLocked(key, clock_.now() + delay);
  }
}

void WorkQueue::addAtLocked(const std::string& key, TimePoint due) {
  if (shut_down_) return;
  const auto [it, inserted] = due_of_.try_emplace(key, due);
  if (!inserted) {
    if (it->second <= due) return;
    delayed_.erase({it->second, key});
    it->second = due;
  }
  delayed_.insert({due, key});
  changed_.notify_one();  // take() may be waiting for a later one
}

void WorkQueue::addRateLimited(const std::string& key) {
  const Lock lock(mutex_);
  ++retries_;
  const int failures = failures_[key]++;
  // 2^40 times any base is beyond every maximum: the shift never overflows.
  const double delay = toSeconds(options_.retry_base) *
                       static_cast<double>(std::int64_t{1} << std::min(failures, 40));
  addAtLocked(key, clock_.now() + fromSeconds(std::min(delay, toSeconds(options_.retry_max))));
}

void WorkQueue::forget(const std::string& key) {
  const Lock lock(mutex_);
  failures_.erase(key);
}

void WorkQueue::moveDueLocked() {
  const TimePoint now = clock_.now();
  while (!delayed_.empty() && delayed_.begin()->first <= now) {
    const std::string key = delayed_.begin()->second;
    delayed_.erase(delayed_.begin());
    due_of_.erase(key);
    addLocked(key);
  }
}

std::optional<std::string> WorkQueue::takeLocked() {
  moveDueLocked();
  if (turns_.empty()) return std::nullopt;
  const auto line = ready_.find(turns_.front());
  std::string key = std::move(line->second.front());
  line->second.pop_front();
  if (line->second.empty()) {
    ready_.erase(line);
  } else {
    turns_.push_back(turns_.front());
  }
  turns_.pop_front();
  --due_;
  dirty_.erase(key);
  working_.insert(key);
  if (options_.observer) options_.observer->taken(key);
  return key;
}

std::optional<std::string> WorkQueue::tryTake() {
  const Lock lock(mutex_);
  if (shut_down_) return std::nullopt;
  return takeLocked();
}

std::optional<std::string> WorkQueue::take() {
  Lock lock(mutex_);
  while (!shut_down_) {
    if (auto key = takeLocked()) {
      // Another one watches for what is due next, while this one works.
      changed_.notify_one();
      return key;
    }
    if (delayed_.empty()) {
      changed_.wait(lock);
    } else {
      // A copy: another thread may take the entry meanwhile, and the wait looks at its time again.
      const TimePoint due = delayed_.begin()->first;
      changed_.wait_until(lock, due);
    }
  }
  return std::nullopt;
}

void WorkQueue::done(const std::string& key) {
  const Lock lock(mutex_);
  TY_CHECK(working_.erase(key) == 1, "only a key that was taken is done");
  if (options_.observer) options_.observer->done(key);
  if (shut_down_) return;
  if (options_.pause > Duration::zero()) {
    const TimePoint now = clock_.now();
    forgetRestedLocked(now);
    rests_until_[key] = now + options_.pause;
    rest_ends_.emplace_back(now + options_.pause, key);
    if (dirty_.erase(key) > 0) addAtLocked(key, now + options_.pause);
    return;
  }
  if (dirty_.contains(key)) lineUpLocked(key);
}

void WorkQueue::forgetRestedLocked(TimePoint now) {
  while (!rest_ends_.empty() && rest_ends_.front().first <= now) {
    const auto rest = rests_until_.find(rest_ends_.front().second);
    if (rest != rests_until_.end() && rest->second <= now) rests_until_.erase(rest);
    rest_ends_.pop_front();
  }
}

std::optional<TimePoint> WorkQueue::nextDue() const {
  const Lock lock(mutex_);
  if (delayed_.empty()) return std::nullopt;
  return delayed_.begin()->first;
}

void WorkQueue::shutDown() {
  const Lock lock(mutex_);
  shut_down_ = true;
  changed_.notify_all();
}

std::size_t WorkQueue::waiting() const {
  const Lock lock(mutex_);
  return due_;
}

std::uint64_t WorkQueue::adds() const {
  const Lock lock(mutex_);
  return adds_;
}

std::uint64_t WorkQueue::retries() const {
  const Lock lock(mutex_);
  return retries_;
}

}  // namespace trainyard::control
