// Signals as events of a loop instead of handlers.
#pragma once

#include <initializer_list>
#include <optional>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "base/process/unique_fd.h"

namespace trainyard {

// Blocks the given signals for the calling thread and all that it starts later, and collects them
// instead. Create it in main before any thread exists; it is then usable from one thread at a time.
// Children started by ChildProcess get an empty signal mask again.
class SignalWaiter {
 public:
  static StatusOr<SignalWaiter> create(std::initializer_list<int> signals);

  // Readable while a signal is pending; for poll().
  int fd() const { return fd_.get(); }
  // The next pending signal's number; never blocks.
  std::optional<int> next();
  // Waits until one comes; nothing when `deadline` passes first.
  std::optional<int> wait(TimePoint deadline);

 private:
  explicit SignalWaiter(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace trainyard
