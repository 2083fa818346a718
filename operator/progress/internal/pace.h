// How often something is done to each of many jobs, and when.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/core/clock.h"

namespace trainyard::control {

// `every`, or longer: for all of `jobs` together it is then done `per_second` times a second.
inline Duration stretched(Duration every, std::size_t jobs, double per_second) {
  return std::max(every, fromSeconds(static_cast<double>(jobs) / per_second));
}

// The moment of this job's own in each `pace`, the first that is at least half of it after `began`.
// `phase` spreads jobs: any number that follows from the job. Jobs that were created together, or
// were all asked at once, are so asked one after the other.
inline TimePoint ownMoment(TimePoint began, Duration pace, std::size_t phase) {
  if (pace <= Duration(0)) return began;
  const TimePoint from = began + pace / 2;
  const Duration own(static_cast<Duration::rep>(phase % static_cast<std::size_t>(pace.count())));
  const Duration since = (from.time_since_epoch() - own) % pace;
  return since == Duration(0) ? from : from + (pace - since);
}

}  // namespace trainyard::control
