#include "agent/telling/examples_rate.h"

#include "gtest/gtest.h"

namespace trainyard::agent {
namespace {

TimePoint at(double seconds) {
  return TimePoint(std::chrono::hours(1)) + fromSeconds(seconds);
}

TEST(ExamplesRate, IsTheDifferenceOverTheLastTenSeconds) {
  ExamplesRate rate;
  EXPECT_EQ(rate.perSecond(at(0)), std::nullopt);
  rate.add(at(0), 100);
  EXPECT_EQ(rate.perSecond(at(0)), std::nullopt) << "one says nothing";
  rate.add(at(1), 150);
  EXPECT_DOUBLE_EQ(*rate.perSecond(at(1)), 50);
  for (int second = 2; second <= 40; ++second) {
    rate.add(at(second), second < 20 ? 150 : 150 + 1000 * (second - 19));
  }
  EXPECT_DOUBLE_EQ(*rate.perSecond(at(40)), 1000) << "what was before is forgotten";
}

TEST(ExamplesRate, OfLongStepsIsThatOfTheLastTwo) {
  ExamplesRate rate;
  for (int step = 0; step < 4; ++step) rate.add(at(60 * step), 600 * step);
  EXPECT_DOUBLE_EQ(*rate.perSecond(at(180)), 10);
  EXPECT_DOUBLE_EQ(*rate.perSecond(at(299)), 10) << "a long step";
  EXPECT_EQ(rate.perSecond(at(301)), std::nullopt) << "it hangs";
}

TEST(ExamplesRate, EndsWithTheTellings) {
  ExamplesRate rate;
  rate.add(at(0), 0);
  rate.add(at(1), 10);
  EXPECT_DOUBLE_EQ(*rate.perSecond(at(10)), 10);
  EXPECT_EQ(rate.perSecond(at(11.5)), std::nullopt);
  rate.add(at(20), 200);
  EXPECT_DOUBLE_EQ(*rate.perSecond(at(20)), 10) << "and begins again with them";
}

TEST(ExamplesRate, HoldsFewSamplesHoweverOftenIsTold) {
  ExamplesRate rate;
  for (int i = 0; i <= 100'000; ++i) rate.add(at(i / 1000.0), static_cast<std::uint64_t>(i));
  EXPECT_NEAR(*rate.perSecond(at(100)), 1000, 1e-6);
}

TEST(ExamplesRate, SaysNothingOfAMoment) {
  ExamplesRate rate;
  rate.add(at(0), 0);
  rate.add(at(0.01), 64);
  EXPECT_EQ(rate.perSecond(at(0.01)), std::nullopt);
}

}  // namespace
}  // namespace trainyard::agent
