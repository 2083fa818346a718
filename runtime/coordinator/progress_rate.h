// Steps per second over the last seconds, from (step, time) observations.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>

#include "base/core/clock.h"

namespace trainyard::runtime {

class ProgressRate {
 public:
  void observe(std::int64_t step, TimePoint now) {
    if (!seen_.empty() && step < seen_.back().first) seen_.clear();
    if (seen_.empty() || step > seen_.back().first) seen_.emplace_back(step, now);
    while (seen_.size() > 2 && now - seen_.front().second > kWindow) seen_.pop_front();
  }
  // 0 until two observations differ.
  double stepsPerSecond() const {
    if (seen_.size() < 2) return 0;
    const double seconds = toSeconds(seen_.back().second - seen_.front().second);
    return seconds <= 0 ? 0
                        : static_cast<double>(seen_.back().first - seen_.front().first) / seconds;
  }
  // The step that is probably reached at `at`.
  std::int64_t expectedAt(TimePoint at) const {
    if (seen_.empty()) return 0;
    return seen_.back().first +
           static_cast<std::int64_t>(stepsPerSecond() * toSeconds(at - seen_.back().second));
  }
  void reset() { seen_.clear(); }

 private:
  static constexpr Duration kWindow = std::chrono::seconds(10);
  std::deque<std::pair<std::int64_t, TimePoint>> seen_;
};

}  // namespace trainyard::runtime
