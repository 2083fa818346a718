#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/core/check.h"
#include "base/core/rng.h"
#include "runtime/catalog/catalog.h"

namespace trainyard::runtime {
namespace {

// 53 of 64 random bits as a number in (0, 1]; never 0, because its logarithm is taken.
double unitInterval(std::uint32_t high, std::uint32_t low) {
  const std::uint64_t bits = (std::uint64_t{high} << 32 | low) >> 11;
  return static_cast<double>(bits + 1) * 0x1p-53;
}

// Standard normal (Box and Muller, 1958), drawn again while beyond two: attempt k of an element is
// the counter (element, k), so no element's value depends on another's attempts.
double truncatedNormal(std::uint64_t key, std::uint64_t element) {
  for (std::uint64_t attempt = 0;; ++attempt) {
    const Philox4 r = philox(key, element, attempt);
    const double radius = std::sqrt(-2 * std::log(unitInterval(r.v[0], r.v[1])));
    const double z = radius * std::cos(2 * std::numbers::pi * unitInterval(r.v[2], r.v[3]));
    if (std::fabs(z) <= 2) return z;
  }
}

}  // namespace

void initialise(const Variable& variable, std::uint64_t seed, std::int64_t begin,
                std::span<float> out) {
  TY_CHECK(variable.dtype == DType::kFloat32, "only float32 variables have initial values");
  TY_CHECK(begin >= 0 && begin + std::int64_t(out.size()) <= variable.elements(),
           "a shard asks for elements of its variable only");
  switch (variable.initializer.kind) {
    case Initializer::Kind::kZeros:
      std::fill(out.begin(), out.end(), 0.0f);
      return;
    case Initializer::Kind::kConstant:
      std::fill(out.begin(), out.end(), variable.initializer.value);
      return;
    case Initializer::Kind::kTruncatedNormal: {
      const std::uint64_t key = mixKey(seed, variable.name);
      const double deviation = variable.initializer.value;
      std::uint64_t element = std::uint64_t(begin);
      for (float& value : out) value = float(truncatedNormal(key, element++) * deviation);
      return;
    }
  }
}

}  // namespace trainyard::runtime
