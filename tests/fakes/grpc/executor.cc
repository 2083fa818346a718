#include "tests/fakes/grpc/executor.h"

namespace trainyard::fakes {
namespace {

// Handlers wait for locks, connections and files; none waits for another call.
constexpr int kThreads = 8;

}  // namespace

Executor& Executor::get() {
  static Executor executor;
  return executor;
}

Executor::Executor() {
  for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { run(); });
  threads_.emplace_back([this] { runTimers(); });
}

Executor::~Executor() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    wake_.notify_all();
    wake_timers_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

void Executor::post(Work work) {
  std::lock_guard lock(mutex_);
  queue_.push_back(std::move(work));
  wake_.notify_one();
}

void Executor::postAt(Time time, Work work) {
  std::lock_guard lock(mutex_);
  timers_.emplace(time, std::move(work));
  wake_timers_.notify_one();
}

void Executor::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return ending_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Work work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    work();
    work = nullptr;
    lock.lock();
  }
}

void Executor::runTimers() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    const Time now = std::chrono::steady_clock::now();
    while (!timers_.empty() && timers_.begin()->first <= now) {
      queue_.push_back(std::move(timers_.extract(timers_.begin()).mapped()));
      wake_.notify_one();
    }
    // A copy: the wait looks at it while others add and take.
    const Time next = timers_.empty() ? now + std::chrono::hours(1) : timers_.begin()->first;
    wake_timers_.wait_until(lock, next);
  }
}

}  // namespace trainyard::fakes
