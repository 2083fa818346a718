// What the ranks of an all-reduce job did, from the timeline that `run --timeline` leaves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard::cli {

struct RankWork {
  std::string name;           // "worker-1", with several processes "worker-1.0"
  std::int64_t steps = 0;     // passes, repeated ones too
  double busy_seconds = 0;    // reading data and computing
  double reduce_seconds = 0;  // in all-reduce
  double waited_seconds = 0;  // of these, in which the rank did nothing else
  double busyPerStep() const { return busy_seconds / static_cast<double>(steps); }
  // Part of the time in all-reduce that lies behind the computing; 0 where there was none.
  double hidden() const { return reduce_seconds > 0 ? 1 - waited_seconds / reduce_seconds : 0; }
};

// Reads text of timeline.json (runtime/events/timeline.h). Ranks that have taken a step, the one
// that computes longest for a step first. Empty for jobs without all-reduce. Lines that are none of
// its are left out. Pure.
std::vector<RankWork> parseTimeline(const std::string& text);

}  // namespace trainyard::cli
