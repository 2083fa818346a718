// Notices a program that has stopped to report: frozen, or with a thread that hangs.
#pragma once

#include <cstdint>
#include <optional>

#include "base/core/clock.h"

namespace trainyard::agent {

// Not thread-safe.
class SilenceWatch {
 public:
  explicit SilenceWatch(Duration limit) : limit_(limit) {}

  // `reports`: how often the present program has reported; 0: not yet, or none runs, which is no
  // silence (opening the data may take long). True when the last one was `limit` ago; then again
  // only after another `limit`. Of the time between two looks at most a second counts: while this
  // process itself did not run, it could not hear anything.
  bool observe(std::uint64_t reports, TimePoint now);

 private:
  const Duration limit_;
  std::uint64_t reports_ = 0;
  std::optional<TimePoint> looked_;
  Duration silence_ = Duration(0);
};

}  // namespace trainyard::agent
