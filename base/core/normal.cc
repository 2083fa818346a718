#include "base/core/normal.h"

#include <cmath>
#include <numbers>

#include "base/core/rng.h"

namespace trainyard {
namespace {

// 53 of 64 random bits as a number in (0, 1]; never 0, because its logarithm is taken.
double unitInterval(std::uint32_t high, std::uint32_t low) {
  const std::uint64_t bits = (std::uint64_t{high} << 32 | low) >> 11;
  return static_cast<double>(bits + 1) * 0x1p-53;
}

}  // namespace

double truncatedNormal(std::uint64_t key, std::uint64_t counter) {
  for (std::uint64_t attempt = 0;; ++attempt) {
    const Philox4 r = philox(key, counter, attempt);
    const double radius = std::sqrt(-2 * std::log(unitInterval(r.v[0], r.v[1])));
    const double z = radius * std::cos(2 * std::numbers::pi * unitInterval(r.v[2], r.v[3]));
    if (std::fabs(z) <= 2) return z;
  }
}

}  // namespace trainyard
