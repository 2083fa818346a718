// How often something may be done.
#pragma once

#include <algorithm>

#include "base/core/clock.h"

namespace trainyard {

// So many times a second, and so many at once after a quiet time. Not thread-safe.
class Allowance {
 public:
  Allowance(double per_second, int at_once)
      : every_(fromSeconds(1 / per_second)), quiet_((at_once - 1) * every_) {}
  // Whether it may be done now; then it counts.
  bool take(TimePoint now) {
    next_ = std::max(next_, now - quiet_);
    if (next_ > now) return false;
    next_ += every_;
    return true;
  }

 private:
  const Duration every_, quiet_;
  TimePoint next_ = TimePoint::min();  // it begins with a quiet time, however young the clock is
};

}  // namespace trainyard
