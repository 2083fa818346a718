#include "base/core/helper_pool.h"

#include <algorithm>
#include <atomic>

namespace trainyard {

struct HelperPool::Batch {
  explicit Batch(std::size_t pieces, const std::function<bool(std::size_t)>& piece)
      : count(pieces), work(piece) {}

  void run() {
    while (!ended) {
      const std::size_t i = next++;
      if (i >= count) return;
      if (!work(i)) ended = true;
    }
  }

  const std::size_t count;
  const std::function<bool(std::size_t)>& work;
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> ended = false;
  int helpers = 0;  // under the pool's mutex
};

HelperPool::~HelperPool() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void HelperPool::addHelpersLocked() {
  const std::size_t missing = wanted_.size() - std::min(wanted_.size(), idle_);
  const std::size_t more = std::min(missing, most_ - threads_.size());
  for (std::size_t i = 0; i < more; ++i) threads_.emplace_back([this] { help(); });
}

void HelperPool::forEach(std::size_t count, std::size_t at_once,
                         const std::function<bool(std::size_t)>& work) {
  Batch batch(count, work);
  const std::size_t side_by_side = std::min(at_once, count);
  if (side_by_side > 1 && most_ > 0) {
    const std::lock_guard lock(mutex_);
    wanted_.insert(wanted_.end(), side_by_side - 1, &batch);
    addHelpersLocked();
    changed_.notify_all();
  }
  batch.run();
  std::unique_lock lock(mutex_);
  std::erase(wanted_, &batch);
  changed_.wait(lock, [&] { return batch.helpers == 0; });
}

void HelperPool::help() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    changed_.wait(lock, [this] { return ending_ || !wanted_.empty(); });
    --idle_;
    if (ending_) return;
    Batch* const batch = wanted_.front();
    wanted_.pop_front();
    ++batch->helpers;
    lock.unlock();
    batch->run();
    lock.lock();
    --batch->helpers;
    changed_.notify_all();
  }
}

}  // namespace trainyard
