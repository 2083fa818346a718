#include "runtime/coordinator/progress_rate.h"

#include "gtest/gtest.h"

namespace trainyard::runtime {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
constexpr TimePoint kStart{std::chrono::hours(1)};

TEST(ProgressRate, IsZeroUntilTwoStepsAreSeen) {
  ProgressRate rate;
  EXPECT_EQ(rate.stepsPerSecond(), 0);
  EXPECT_EQ(rate.expectedAt(kStart), 0);
  rate.observe(5, kStart);
  rate.observe(5, kStart + seconds(3));  // the same again says nothing
  EXPECT_EQ(rate.stepsPerSecond(), 0);
  EXPECT_EQ(rate.expectedAt(kStart + seconds(9)), 5);
}

TEST(ProgressRate, IsTheMeanOfTheLastTenSeconds) {
  ProgressRate rate;
  for (int i = 0; i <= 20; ++i) rate.observe(i, kStart + seconds(i));  // 1 per second
  for (int i = 1; i <= 100; ++i) rate.observe(20 + i, kStart + seconds(20) + milliseconds(100 * i));
  EXPECT_DOUBLE_EQ(rate.stepsPerSecond(), 10);
  EXPECT_EQ(rate.expectedAt(kStart + seconds(31)), 130);
}

TEST(ProgressRate, GoingBackBeginsAnew) {
  ProgressRate rate;
  rate.observe(10, kStart);
  rate.observe(20, kStart + seconds(1));
  rate.observe(12, kStart + seconds(2));
  EXPECT_EQ(rate.stepsPerSecond(), 0);
  EXPECT_EQ(rate.expectedAt(kStart + seconds(2)), 12);
  rate.observe(13, kStart + seconds(3));
  EXPECT_DOUBLE_EQ(rate.stepsPerSecond(), 1);
  rate.reset();
  EXPECT_EQ(rate.stepsPerSecond(), 0);
}

TEST(ProgressRate, TwoStepsAtOneMomentAreNoRate) {
  ProgressRate rate;
  rate.observe(1, kStart);
  rate.observe(2, kStart);
  EXPECT_EQ(rate.stepsPerSecond(), 0);
}

}  // namespace
}  // namespace trainyard::runtime
