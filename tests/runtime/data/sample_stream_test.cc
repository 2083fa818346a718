#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/core/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/data/dataset.h"

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

// Epochs with other numbers of workers, one after the other, as membership changes: together the
// ranks read every position once, so every full pass has every sample once.
TEST(SyncPositions, EverySampleOncePerPassAcrossEpochs) {
  Rng rng(11);
  for (int round = 0; round < 50; ++round) {
    const auto samples = static_cast<std::int64_t>(1 + rng.below(200));
    const int batch = static_cast<int>(1 + rng.below(17));
    std::vector<int> used;  // by position
    std::vector<std::int64_t> reads;
    std::int64_t first_position = 0;
    std::int64_t first_step = 0;
    while (first_position < 3 * samples) {
      const int ranks = static_cast<int>(1 + rng.below(5));
      const auto steps = static_cast<std::int64_t>(1 + rng.below(6));
      const std::int64_t end =
          syncPosition(first_position, first_step, first_step + steps, ranks, 0, batch);
      used.resize(end);
      reads.resize(end);
      for (int rank = 0; rank < ranks; ++rank) {
        SampleStream own(7, samples);
        for (std::int64_t step = first_step; step < first_step + steps; ++step) {
          const std::int64_t at =
              syncPosition(first_position, first_step, step, ranks, rank, batch);
          ASSERT_LE(at + batch, end);
          const std::vector<std::int64_t> read = positions(own, at, batch);
          for (int i = 0; i < batch; ++i) {
            ++used[at + i];
            reads[at + i] = read[i];
          }
        }
      }
      first_position = end;
      first_step += steps;
    }
    EXPECT_THAT(used, testing::Each(1));
    for (std::int64_t pass = 0; (pass + 1) * samples <= first_position; ++pass) {
      std::set<std::int64_t> seen(reads.begin() + pass * samples,
                                  reads.begin() + (pass + 1) * samples);
      EXPECT_EQ(static_cast<std::int64_t>(seen.size()), samples) << "pass " << pass;
    }
  }
}

TEST(SyncPositions, TheFormula) {
  EXPECT_EQ(syncPosition(0, 0, 0, 2, 0, 128), 0);
  EXPECT_EQ(syncPosition(0, 0, 0, 2, 1, 128), 128);
  EXPECT_EQ(syncPosition(0, 0, 3, 2, 1, 128), 7 * 128);
  EXPECT_EQ(syncPosition(1000, 50, 52, 3, 2, 10), 1000 + 8 * 10);
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
