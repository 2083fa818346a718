#include "base/core/work_thread.h"

#include <utility>

namespace trainyard {

WorkThread::WorkThread() : thread_([this] { run(); }) {}

WorkThread::~WorkThread() {
  stop();
}

void WorkThread::add(std::function<void()> work) {
  std::lock_guard lock(mutex_);
  if (ending_ == Ending::kAtOnce) return;
  work_.push_back(std::move(work));
  changed_.notify_all();
}

void WorkThread::stop() {
  end(Ending::kAtOnce);
}

void WorkThread::finish() {
  end(Ending::kWithAll);
}

void WorkThread::end(Ending how) {
  {
    std::lock_guard lock(mutex_);
    ending_ = how;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void WorkThread::run() {
  for (;;) {
    std::function<void()> next;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ending_ != Ending::kNot || !work_.empty(); });
      if (ending_ == Ending::kAtOnce || work_.empty()) return;
      next = std::move(work_.front());
      work_.pop_front();
    }
    next();
  }
}

}  // namespace trainyard
