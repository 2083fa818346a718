#include "runtime/rows/initial_row.h"

#include <algorithm>

#include "base/core/rng.h"

namespace trainyard::runtime::rows {
namespace {

void fillUniform(float scale, std::uint64_t key, std::uint64_t id, std::span<float> row) {
  for (std::size_t begin = 0; begin < row.size(); begin += 4) {
    const Philox4 random = philox(key, id, begin / 4);
    const std::size_t end = std::min(row.size(), begin + 4);
    for (std::size_t i = begin; i < end; ++i)
      row[i] = (2 * toUnitFloat(random.v[i - begin]) - 1) * scale;
  }
}

void fillTruncatedNormal(float scale, std::uint64_t key, std::uint64_t id, std::span<float> row) {
  for (std::size_t begin = 0; begin < row.size(); begin += 4) {
    const Philox4 random = philox(key, id, begin / 4);
    const std::size_t end = std::min(row.size(), begin + 4);
    for (std::size_t i = begin; i < end; ++i)
      row[i] = static_cast<float>(truncatedQuantile(toUnitFloat(random.v[i - begin])) * scale);
  }
}

}  // namespace

// With x = (2 u - 1) P(|Z| <= 2) it is sqrt(2) erfinv(x), here x times a ratio of polynomials in
// x^2, fitted to that over the interval (least squares of the relative error, weighted anew until
// that is level; below 1e-7 everywhere). Of a table of millions of rows most of the time of a step
// would be logarithms and cosines, and this has the same bits whatever library there is.
double truncatedQuantile(double u) {
  const double x = (2 * u - 1) * 0.9544997361036416;
  const double y = x * x;
  const double p =
      1.25331422241 +
      y * (-3.05145496991 + y * (2.49696606478 + y * (-0.746594301728 + y * 0.0500636284978)));
  const double q =
      1 + y * (-2.69650355767 + y * (2.55424490929 + y * (-0.973676127242 + y * 0.116672458653)));
  return std::clamp(x * p / q, -2.0, 2.0);
}

void initialiseRow(const RowInitializer& initializer, std::uint64_t key, std::uint64_t id,
                   std::span<float> row) {
  switch (initializer.kind) {
    case RowInitializer::Kind::kZeros:
      std::ranges::fill(row, 0.0F);
      return;
    case RowInitializer::Kind::kUniform:
      fillUniform(initializer.scale, key, id, row);
      return;
    case RowInitializer::Kind::kTruncatedNormal:
      fillTruncatedNormal(initializer.scale, key, id, row);
      return;
  }
}

}  // namespace trainyard::runtime::rows
