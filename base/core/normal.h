// Normal random numbers from counters (rng.h).
#pragma once

#include <cstdint>

namespace trainyard {

// A standard normal variable (Box and Muller, 1958) that lies within two standard deviations: drawn
// again while beyond. A function of (key, counter) alone.
double truncatedNormal(std::uint64_t key, std::uint64_t counter);

}  // namespace trainyard
