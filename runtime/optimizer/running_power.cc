#include "runtime/optimizer/internal/running_power.h"

#include <algorithm>

#include "base/core/check.h"

namespace trainyard::runtime::internal {

RunningPower::RunningPower(float base) : base_(base), kept_{base}, last_(base) {}

float RunningPower::at(std::int64_t n) {
  TY_CHECK(n >= 1, "the first power that a step uses is base itself");
  const std::lock_guard lock(mutex_);
  // Start from the nearest power at or below n that is known.
  const std::int64_t known = std::min<std::int64_t>((n - 1) / kStride, kept_.size() - 1);
  std::int64_t at = 1 + known * kStride;
  float power = kept_[known];
  if (last_n_ <= n && last_n_ > at) {
    at = last_n_;
    power = last_;
  }
  while (at < n) {
    power *= base_;
    ++at;
    if ((at - 1) / kStride == static_cast<std::int64_t>(kept_.size())) kept_.push_back(power);
  }
  last_n_ = n;
  last_ = power;
  return power;
}

}  // namespace trainyard::runtime::internal
