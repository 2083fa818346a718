#include "agent/supervisor/silence_watch.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace trainyard::agent {

bool SilenceWatch::observe(std::uint64_t reports, TimePoint now) {
  const Duration passed = looked_ ? now - *looked_ : Duration(0);
  looked_ = now;
  if (std::exchange(reports_, reports) != reports || reports == 0) {
    silence_ = Duration(0);
    return false;
  }
  silence_ += std::min<Duration>(passed, std::chrono::seconds(1));
  if (silence_ < limit_) return false;
  silence_ = Duration(0);
  return true;
}

}  // namespace trainyard::agent
