#include "runtime/data/sample_stream.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/core/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard::runtime {
namespace {

std::vector<std::int64_t> positions(SampleStream& stream, std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> out(count);
  stream.lookUp(first, out);
  return out;
}

// A checkpoint names a position, so the order is part of its meaning.
TEST(SampleStream, TheOrderNeverChanges) {
  SampleStream stream(1, 10);
  EXPECT_EQ(positions(stream, 0, 20), (std::vector<std::int64_t>{0, 9, 8, 1, 5, 2, 4, 6, 3, 7,  //
                                                                 2, 1, 5, 4, 3, 0, 8, 6, 7, 9}));
}

TEST(SampleStream, EveryPassHasEverySampleOnceAndAnOrderOfItsOwn) {
  for (const std::int64_t samples : {1, 2, 3, 100, 60000}) {
    SampleStream stream(42, samples);
    std::set<std::vector<std::int64_t>> orders;
    for (int pass = 0; pass < 3; ++pass) {
      std::vector<std::int64_t> order = positions(stream, pass * samples, samples);
      orders.insert(order);
      std::sort(order.begin(), order.end());
      std::vector<std::int64_t> all(samples);
      std::iota(all.begin(), all.end(), 0);
      ASSERT_EQ(order, all) << "pass " << pass << " of " << samples;
    }
    if (samples >= 100) {
      EXPECT_EQ(orders.size(), 3u);
    }
  }
}

TEST(SampleStream, SeedsGiveOtherOrders) {
  SampleStream one(1, 1000);
  SampleStream two(2, 1000);
  EXPECT_NE(positions(one, 0, 1000), positions(two, 0, 1000));
}

TEST(SampleStream, APositionIsAFunctionOfItsNumberAlone) {
  constexpr std::int64_t kSamples = 37;
  SampleStream straight(9, kSamples);
  const std::vector<std::int64_t> all = positions(straight, 0, 20 * kSamples);
  SampleStream jumping(9, kSamples);
  Rng rng(3);
  for (int i = 0; i < 500; ++i) {
    const auto first = static_cast<std::int64_t>(rng.below(all.size()));
    // Up to three passes in one call.
    const auto count = static_cast<std::int64_t>(
        rng.below(std::min<std::uint64_t>(all.size() - first, 3 * kSamples) + 1));
    const std::vector<std::int64_t> expected(all.begin() + first, all.begin() + first + count);
    ASSERT_EQ(positions(jumping, first, count), expected) << first << " + " << count;
  }
}

TEST(SampleStream, EveryOrderOfThreeIsAboutEquallyLikely) {
  std::map<std::vector<std::int64_t>, int> counts;
  SampleStream stream(5, 3);
  constexpr int kPasses = 6000;
  for (int pass = 0; pass < kPasses; ++pass) ++counts[positions(stream, pass * 3, 3)];
  ASSERT_EQ(counts.size(), 6u);
  // 1,000 expected, standard deviation 29.
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, 1000, 150);
}

TEST(EvaluationSlices, CoverTheSetEvenly) {
  for (const std::int64_t n : {0, 1, 7, 10000, 10001}) {
    for (const int ranks : {1, 2, 3, 7, 64}) {
      std::int64_t end = 0;
      std::set<std::int64_t> sizes;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto slice = evaluationSlice(n, ranks, rank);
        EXPECT_EQ(slice.first, end);
        sizes.insert(slice.second - slice.first);
        end = slice.second;
      }
      EXPECT_EQ(end, n);
      EXPECT_LE(*sizes.rbegin() - *sizes.begin(), 1);
    }
  }
}

}  // namespace
}  // namespace trainyard::runtime
