#include "base/core/normal.h"

#include <cmath>

#include "gtest/gtest.h"

namespace trainyard {
namespace {

// The definition: the variable is below its quantile with this probability.
TEST(Normal, QuantilesAreThoseOfTheTruncatedNormal) {
  const double within = std::erf(std::sqrt(2.0));
  double before = -3;
  for (int i = 0; i <= 10'000; ++i) {
    const double u = i / 10'000.0, z = truncatedQuantile(u);
    EXPECT_NEAR(0.5 + std::erf(z / std::sqrt(2.0)) / within / 2, u, 1e-7) << u;
    EXPECT_GT(z, before);
    EXPECT_LE(std::fabs(z), 2);
    before = z;
  }
}

}  // namespace
}  // namespace trainyard
