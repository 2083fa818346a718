// Pipes and wake-ups.
#pragma once

#include "base/core/status.h"
#include "base/process/unique_fd.h"

namespace trainyard {

struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;
};
// Both ends close-on-exec.
StatusOr<Pipe> makePipe();

// Wakes a thread that polls fd(). wake() is thread-safe and may be called from any thread.
class WakeUp {
 public:
  static StatusOr<WakeUp> create();
  int fd() const { return fd_.get(); }
  void wake() const;
  // Makes fd() unreadable again.
  void clear() const;

 private:
  explicit WakeUp(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace trainyard
