// Waiting for a point in time, for code whose purpose is to take time. Whoever waits for something
// else waits for that: a condition, a descriptor, a call.
#pragma once

#include "base/core/clock.h"

namespace trainyard {

// Returns at `at` of the system's clock or a little after, at once when it has passed.
void sleepUntil(TimePoint at);

}  // namespace trainyard
