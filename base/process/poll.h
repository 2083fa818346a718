// poll() with a deadline instead of a duration, immune to interruptions.
#pragma once

#include <poll.h>

#include <span>

#include "base/core/clock.h"

namespace trainyard {

// Waits until one of `fds` has an event (revents is filled in) or `deadline` passes. Returns the
// number of descriptors with events, 0 at the deadline.
int pollUntil(std::span<pollfd> fds, TimePoint deadline);

// Waits until `fd` is readable (or closed by the other side); false at the deadline.
bool waitReadable(int fd, TimePoint deadline);

}  // namespace trainyard
