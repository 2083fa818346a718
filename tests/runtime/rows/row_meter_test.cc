#include "runtime/rows/row_meter.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace trainyard::runtime::rows {
namespace {

// Of things in groups of 64, how often each place in the group was taken.
std::vector<double> taken(std::uint64_t seed, double every, int groups) {
  RandomSample sample(seed, every);
  std::vector<double> times(64);
  for (int g = 0; g < groups; ++g) sample.take(times.size(), [&](std::size_t at) { ++times[at]; });
  return times;
}

// Groups have a length of which `every` is a divisor: a fixed stride would always meet the same.
TEST(RandomSample, TakesEachPlaceAsOften) {
  constexpr int kGroups = 40'000;
  const double mean = kGroups / 16.0;
  const double deviation = std::sqrt(mean * (1 - 1 / 16.0));
  double chi_square = 0;
  for (const double times : taken(3, 16, kGroups)) {
    EXPECT_NEAR(times, mean, 4.5 * deviation);
    chi_square += (times - mean) * (times - mean) / (deviation * deviation);
  }
  // 64 degrees of freedom: 64 and five times their deviation; less than that is as suspicious.
  EXPECT_NEAR(chi_square, 64, 5 * std::sqrt(2 * 64.0));
}

TEST(RandomSample, TakesIndependentlyOfTheOneBefore) {
  RandomSample sample(5, 4);
  constexpr std::size_t kThings = 400'000;
  std::vector<char> is_taken(kThings);
  sample.take(kThings, [&](std::size_t at) { is_taken[at] = 1; });
  std::size_t pairs = 0;
  for (std::size_t i = 1; i < kThings; ++i) pairs += is_taken[i - 1] & is_taken[i];
  EXPECT_NEAR(static_cast<double>(pairs), kThings / 16.0, 5 * std::sqrt(kThings / 16.0));
}

TEST(RandomSample, DoesNotDependOnHowThingsAreCut) {
  const auto at = [](std::size_t length) {
    RandomSample sample(9, 16);
    std::vector<std::size_t> places;
    for (std::size_t begin = 0; begin < 1200; begin += length)
      sample.take(length, [&](std::size_t i) { places.push_back(begin + i); });
    return places;
  };
  EXPECT_EQ(at(1), at(1200));
  EXPECT_EQ(at(16), at(1200));
  EXPECT_EQ(at(400), at(1200));
}

TEST(RowMeter, CountsExactly) {
  RowMeter meter(1);
  const std::vector<std::uint64_t> ids = {4, 5, 6};
  meter.pulled(ids);
  meter.pulled({});
  meter.pushed(2);
  meter.updated({.created = 2, .refused = 1});
  meter.updated({.created = 1, .refused = 0});
  EXPECT_EQ(meter.counts().pulled, 3U);
  EXPECT_EQ(meter.counts().pushed, 2U);
  EXPECT_EQ(meter.counts().created, 3U);
  EXPECT_EQ(meter.counts().refused, 1U);
  meter.evicted(4);
  EXPECT_EQ(meter.counts().evicted, 4U);
}

// Each step asks for one id of a few that are hot, and for 63 that come once: a sample that took
// every 64th would see the hot ones alone, or none of them.
TEST(RowMeter, ASampleOfPullsHasTheirShare) {
  RowMeter meter(7);
  std::uint64_t cold = 100;
  for (std::uint64_t step = 0; step < 100'000; ++step) {
    std::vector<std::uint64_t> ids = {step % 8};
    while (ids.size() < 64) ids.push_back(cold++);
    meter.pulled(ids);
  }
  for (const SpaceSaving::Counter& counter : meter.hot().counters().first(8)) {
    EXPECT_LT(counter.id, 8U);
    const double sampled = static_cast<double>(counter.count - counter.error);
    EXPECT_NEAR(sampled / static_cast<double>(meter.hot().observations()), 1 / 512.0, 0.0007);
  }
  EXPECT_NEAR(static_cast<double>(meter.hot().observations()), 1e5, 5 * std::sqrt(1e5));
}

}  // namespace
}  // namespace trainyard::runtime::rows
