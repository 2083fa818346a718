// How much must be under way to a server so that the link to it is never idle.
//
// As much as the link carries in the time until a place is free again: its bandwidth times the
// delay there and back. With twice that a link is full although answers come in bursts, and while
// it is not, the rate that is measured, which is then what is under way by the delay, makes the
// next estimate up to twice as large: so it finds what the link can carry (Cardwell, Cheng et al.:
// BBR: Congestion-Based Congestion Control, ACM Queue 14(5), 2016, whose gain at the start is 2.9).
// Rates are smoothed as round trips are in RFC 6298, section 2: by an eighth of what is new.
#pragma once

#include <cstdint>
#include <map>

#include "base/core/clock.h"

namespace trainyard::runtime::ps {

// Of one server, over all lanes to it. Not thread-safe.
class LinkEstimate {
 public:
  // What has been measured of a lane: how fast bytes are acknowledged that are sent on it, and the
  // shortest time there and back, which waits for nobody.
  void observe(int lane, double bytes_per_second, Duration round_trip);

  // Of all lanes together; 0: nothing was measured.
  double bytesPerSecond() const;
  // The shortest of any lane; 0: nothing was measured.
  Duration delay() const;
  // 2 x bandwidth x delay.
  std::uint64_t windowBytes() const;

 private:
  struct Lane {
    double bytes_per_second = 0;
    Duration round_trip{};
  };
  std::map<int, Lane> lanes_;
};

}  // namespace trainyard::runtime::ps
