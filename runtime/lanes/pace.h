// What the kernel has measured of a connection.
#pragma once

#include <optional>

#include "base/core/clock.h"

namespace trainyard::runtime::lanes {

struct Pace {
  // How fast the other side has acknowledged bytes lately, while there were some to send; the
  // fastest, where whoever sends has not kept the connection busy (tcpi_delivery_rate).
  double bytes_per_second = 0;
  // The shortest time of a segment there and its acknowledgement back, of the last five minutes
  // (tcpi_min_rtt): the kernel's own, so no answer that waits for something is in it.
  Duration round_trip{};
};

// Of a TCP socket that has sent something; nothing where the kernel does not say.
std::optional<Pace> paceOf(int fd);

}  // namespace trainyard::runtime::lanes
