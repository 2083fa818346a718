#include "base/core/allowance.h"

#include "gtest/gtest.h"

namespace trainyard {
namespace {

// A machine that has just started has a clock that is younger than the quiet time.
TEST(AllowanceTest, BeginsWithAQuietTime) {
  Allowance allowance(1.0 / 3600, 5);
  const TimePoint now{std::chrono::minutes(1)};
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(allowance.take(now)) << i;
  EXPECT_FALSE(allowance.take(now));
}

TEST(AllowanceTest, AllowsSoManyASecondAndAFewAtOnce) {
  Allowance allowance(20, 5);
  TimePoint now{std::chrono::hours(1)};
  int at_once = 0;
  while (allowance.take(now)) ++at_once;
  EXPECT_EQ(at_once, 5);
  int later = 0;
  for (int i = 0; i < 1000; ++i) {
    now += std::chrono::milliseconds(1);
    later += allowance.take(now);
  }
  EXPECT_EQ(later, 20);
}

}  // namespace
}  // namespace trainyard
