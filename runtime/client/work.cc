#include "runtime/client/work.h"

#include <utility>

namespace trainyard::runtime::client {

bool Work::done() const {
  const std::lock_guard lock(monitor_->mutex);
  return doneLocked();
}

Status Work::status() const {
  const std::lock_guard lock(monitor_->mutex);
  return *status_;
}

void Work::finish(Status status) {
  std::function<void()> notify;
  {
    const std::lock_guard lock(monitor_->mutex);
    status_ = std::move(status);
    notify = std::exchange(notify_, nullptr);
  }
  monitor_->changed.notify_all();
  if (notify) notify();
}

void Work::notify(std::function<void()> function) {
  {
    const std::lock_guard lock(monitor_->mutex);
    if (!doneLocked()) {
      notify_ = std::move(function);
      return;
    }
  }
  function();
}

}  // namespace trainyard::runtime::client
