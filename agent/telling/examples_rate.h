// Examples per second of a program that tells how many it has seen.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "base/core/clock.h"

namespace trainyard::agent {

// Over the last ten seconds, or over the last two tellings where these are further apart. Pure:
// time by argument, which never goes back. Not thread-safe.
class ExamplesRate {
 public:
  // `examples` since the program began, which never falls.
  void add(TimePoint at, std::uint64_t examples);
  // Nothing until there are two tellings a tenth of a second apart, and nothing once the program
  // has been silent for twice as long as the rate was taken over, but ten seconds at least: what it
  // did then says nothing of now.
  std::optional<double> perSecond(TimePoint now) const;

 private:
  struct Sample {
    TimePoint at;
    std::uint64_t examples = 0;
  };
  std::deque<Sample> samples_;
};

}  // namespace trainyard::agent
