#include "operator/queue/work_queue.h"

#include <algorithm>

#include "base/core/check.h"

namespace trainyard::control {

WorkQueue::WorkQueue(const Clock& clock, QueueOptions options) : clock_(clock), options_(options) {}

void WorkQueue::add(const std::string& key) {
  const Lock lock(mutex_);
  addLocked(key);
}

void WorkQueue::addLocked(const std::string& key) {
  if (shut_down_) return;
  ++adds_;
  if (!dirty_.insert(key).second) return;
  if (working_.contains(key)) return;  // done() puts it in line
  ready_.push_back(key);
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
  if (ready_.empty()) return std::nullopt;
  std::string key = std::move(ready_.front());
  ready_.pop_front();
  dirty_.erase(key);
  working_.insert(key);
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
    if (auto key = takeLocked()) return key;
    if (delayed_.empty()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, delayed_.begin()->first);
    }
  }
  return std::nullopt;
}

void WorkQueue::done(const std::string& key) {
  const Lock lock(mutex_);
  TY_CHECK(working_.erase(key) == 1, "only a key that was taken is done");
  if (!dirty_.contains(key) || shut_down_) return;
  ready_.push_back(key);
  changed_.notify_one();
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
  return ready_.size();
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
