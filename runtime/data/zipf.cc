#include "runtime/data/internal/zipf.h"

#include <algorithm>
#include <cmath>

#include "base/core/check.h"
#include "base/core/rng.h"

namespace trainyard::runtime::internal {
namespace {

constexpr double kShape = 1 / (Zipf::kExponent - 1);  // 20: of the integral, see below
static_assert(kShape > 19.99 && kShape < 20.01, "inverseIntegral() has 20 as its exponent");

double weightOf(double x) {
  return std::pow(x, -Zipf::kExponent);
}

// The integral of x^-1.05 from 1: 20 (1 - x^-0.05).
double integralTo(double x) {
  return kShape * (1 - std::pow(x, 1 - Zipf::kExponent));
}

// (1 - y / 20)^-20, by squares: every machine has the same.
double inverseIntegral(double y) {
  const double t = 1 - y / kShape;
  const double t2 = t * t;
  const double t4 = t2 * t2;
  const double t8 = t4 * t4;
  return 1 / (t8 * t8 * t4);
}

// Of all ranks: of the first ones term by term, of the others the integral, which is as good there.
double sumOfWeights(std::int64_t ranks) {
  const std::int64_t first = std::min<std::int64_t>(ranks, 1000);
  double sum =
      integralTo(static_cast<double>(ranks) + 0.5) - integralTo(static_cast<double>(first) + 0.5);
  for (std::int64_t k = first; k >= 1; --k) sum += weightOf(static_cast<double>(k));
  return sum;
}

}  // namespace

Zipf::Zipf(std::int64_t ranks)
    : ranks_(ranks),
      low_(integralTo(1.5) - 1),
      high_(integralTo(static_cast<double>(ranks) + 0.5)),
      sure_(2 - inverseIntegral(integralTo(2.5) - weightOf(2))),
      sum_(sumOfWeights(ranks)) {
  TY_CHECK(ranks >= 1 && ranks <= kMaxRanks, "ranks are exact in floating point");
}

std::int64_t Zipf::draw(std::uint64_t key, std::uint64_t counter) const {
  for (std::uint64_t attempt = 0;; ++attempt) {
    const Philox4 bits = philox(key, counter, attempt);
    const std::uint64_t word = std::uint64_t{bits.v[0]} << 32 | bits.v[1];
    const double y = high_ + static_cast<double>(word >> 11) * 0x1p-53 * (low_ - high_);
    const double x = inverseIntegral(y);
    const auto rank = std::clamp(static_cast<std::int64_t>(x + 0.5), std::int64_t{1}, ranks_);
    const auto at = static_cast<double>(rank);
    if (at - x <= sure_ || y >= integralTo(at + 0.5) - weightOf(at)) return rank;
  }
}

double Zipf::probability(std::int64_t rank) const {
  return weightOf(static_cast<double>(rank)) / sum_;
}

}  // namespace trainyard::runtime::internal
