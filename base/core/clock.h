// Time by constructor. Only clock.cc and the programs' main files touch the system's clock; pure
// code takes a TimePoint argument.
#pragma once

#include <chrono>
#include <cstdint>

namespace trainyard {

using Duration = std::chrono::nanoseconds;
// Monotonic; its epoch has no meaning.
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;
// Milliseconds since 1970 UTC; for people and files only.
using UnixMillis = std::int64_t;

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
  virtual UnixMillis unixMillis() const = 0;
};

// The system's clock.
const Clock& systemClock();

// Moves only when told. Not thread-safe.
class FakeClock : public Clock {
 public:
  TimePoint now() const override { return now_; }
  UnixMillis unixMillis() const override { return unix_ms_; }
  void advance(Duration by) {
    now_ += by;
    unix_ms_ += std::chrono::duration_cast<std::chrono::milliseconds>(by).count();
  }

 private:
  TimePoint now_{std::chrono::hours(1)};
  UnixMillis unix_ms_ = 1'700'000'000'000;
};

double toSeconds(Duration d);
Duration fromSeconds(double seconds);

}  // namespace trainyard
