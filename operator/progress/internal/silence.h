// What is told of a job's agents that do not answer.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/core/clock.h"
#include "operator/progress/progress_source.h"

namespace trainyard::control {

// One agent that was asked, and did not answer.
struct Silence {
  TaskKey key;
  std::uint32_t created = 0;
  TimePoint since;  // the first time of those in a row
  TaskWait why;     // the last one
};

// Writes down in `told` who has been silent for `after`; whether that is news, which is a write to
// the job's status. Agents of one job are found out one after the other: nothing is told of the
// first ones while others of `silent` are silent for less, or `more` have not been asked yet, for
// as long again at most.
bool tellOfSilent(const std::vector<Silence>& silent, bool more, TimePoint now, Duration after,
                  std::map<TaskKey, JobReport::Unreachable>& told);

}  // namespace trainyard::control
