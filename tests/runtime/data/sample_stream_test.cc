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

SampleOrder blocksOf(std::int64_t samples) {
  return {.kind = SampleOrder::Kind::kBlocks, .block_samples = samples};
}

constexpr SampleOrder kSequential{.kind = SampleOrder::Kind::kSequential, .block_samples = 0};

TEST(SampleStream, SequentialIsAsTheFilesAre) {
  SampleStream stream(7, 5, kSequential);
  EXPECT_EQ(positions(stream, 3, 9), (std::vector<std::int64_t>{3, 4, 0, 1, 2, 3, 4, 0, 1}));
  constexpr std::int64_t kMany = kMaxOrderedSamples;
  SampleStream many(7, kMany, kSequential);
  EXPECT_EQ(positions(many, 3 * kMany - 2, 3),
            (std::vector<std::int64_t>{kMany - 2, kMany - 1, 0}));
}

// A checkpoint names a position, so this order never changes either.
TEST(SampleStream, TheOrderOfBlocksNeverChanges) {
  SampleStream stream(1, 11, blocksOf(3));
  EXPECT_EQ(positions(stream, 0, 22),
            (std::vector<std::int64_t>{10, 9, 8, 6, 7,  0, 2, 1, 3, 5, 4,  //
                                       3,  4, 5, 9, 10, 0, 1, 2, 6, 7, 8}));
}

TEST(SampleStream, BlocksHaveEverySampleOnceAndNeighboursTogether) {
  for (const auto& [samples, size] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, 1}, {1, 5}, {5, 5}, {6, 5}, {100, 1}, {100, 7}, {60000, 1000}, {60001, 4096}}) {
    SampleStream stream(42, samples, blocksOf(size));
    std::set<std::vector<std::int64_t>> orders;
    for (int pass = 0; pass < 3; ++pass) {
      const std::vector<std::int64_t> order = positions(stream, pass * samples, samples);
      orders.insert(order);
      std::int64_t changes = 0;  // of the block
      for (std::int64_t i = 1; i < samples; ++i) changes += order[i] / size != order[i - 1] / size;
      EXPECT_EQ(changes, (samples - 1) / size) << samples << " in blocks of " << size;
      std::vector<std::int64_t> sorted = order;
      std::sort(sorted.begin(), sorted.end());
      std::vector<std::int64_t> all(samples);
      std::iota(all.begin(), all.end(), 0);
      ASSERT_EQ(sorted, all) << "pass " << pass << " of " << samples << " in blocks of " << size;
    }
    if (samples >= 100) {
      EXPECT_EQ(orders.size(), 3u);
    }
  }
}

TEST(SampleStream, APositionInBlocksIsAFunctionOfItsNumberAlone) {
  constexpr std::int64_t kSamples = 37;
  SampleStream straight(9, kSamples, blocksOf(5));
  const std::vector<std::int64_t> all = positions(straight, 0, 20 * kSamples);
  EXPECT_NE(positions(straight, 0, kSamples), positions(straight, kSamples, kSamples));
  SampleStream other(10, kSamples, blocksOf(5));
  EXPECT_NE(positions(other, 0, kSamples), positions(straight, 0, kSamples));
  SampleStream jumping(9, kSamples, blocksOf(5));
  Rng rng(3);
  for (int i = 0; i < 500; ++i) {
    const auto first = static_cast<std::int64_t>(rng.below(all.size()));
    const auto count = static_cast<std::int64_t>(
        rng.below(std::min<std::uint64_t>(all.size() - first, 3 * kSamples) + 1));
    const std::vector<std::int64_t> expected(all.begin() + first, all.begin() + first + count);
    ASSERT_EQ(positions(jumping, first, count), expected) << first << " + " << count;
  }
}

// Three whole blocks and a shorter one: of their orders, and of those of two samples in a block.
TEST(SampleStream, EveryOrderOfBlocksIsAboutEquallyLikely) {
  constexpr int kPasses = 12000;
  std::map<std::vector<std::int64_t>, int> blocks;
  int turned = 0;
  SampleStream stream(5, 7, blocksOf(2));
  for (int pass = 0; pass < kPasses; ++pass) {
    const std::vector<std::int64_t> all = positions(stream, pass * std::int64_t{7}, 7);
    std::vector<std::int64_t> order;
    for (const std::int64_t sample : all)
      if (order.empty() || order.back() != sample / 2) order.push_back(sample / 2);
    ++blocks[order];
    turned += std::find(all.begin(), all.end(), 1) < std::find(all.begin(), all.end(), 0) ? 1 : 0;
  }
  ASSERT_EQ(blocks.size(), 24u);
  // 500 expected, standard deviation 22.
  for (const auto& [order, count] : blocks) EXPECT_NEAR(count, 500, 110);
  EXPECT_NEAR(turned, kPasses / 2, 280);
}

// No more memory for more samples: of many blocks, each sample is of the block that its neighbours
// are of.
TEST(SampleStream, BlocksOfAsManySamplesAsThereMayBe) {
  SampleStream stream(3, kMaxOrderedSamples, blocksOf(1000));
  std::set<std::int64_t> blocks;
  for (std::int64_t i = 0; i < 1000; ++i) {
    const std::vector<std::int64_t> some = positions(stream, i * 1'000'000'000, 4);
    for (const std::int64_t sample : some) {
      ASSERT_GE(sample, 0);
      ASSERT_LT(sample, kMaxOrderedSamples);
    }
    blocks.insert(some[0] / 1000);
  }
  EXPECT_GE(blocks.size(), 999u);
  EXPECT_GT(*blocks.rbegin(), kMaxOrderedSamples / 1000 * 9 / 10);
  EXPECT_LT(*blocks.begin(), kMaxOrderedSamples / 1000 / 10);
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
