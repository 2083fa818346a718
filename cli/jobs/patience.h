// Waiting for something that only looking again can tell, until a deadline.
#pragma once

#include <algorithm>

#include "base/core/clock.h"
#include "base/process/poll.h"

namespace trainyard::cli {

// Used from one thread.
class Patience {
 public:
  Patience(const Clock& clock, Duration limit, Duration look = kLook)
      : clock_(clock), deadline_(clock.now() + limit), look_(look) {}

  // Waits a moment; false when there is no time left.
  bool wait() const {
    if (clock_.now() >= deadline_) return false;
    pollUntil({}, std::min(deadline_, clock_.now() + look_));
    return true;
  }

 private:
  static constexpr Duration kLook = std::chrono::milliseconds(100);
  const Clock& clock_;
  const TimePoint deadline_;
  const Duration look_;
};

}  // namespace trainyard::cli
