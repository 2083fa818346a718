#include "runtime/ring/bucket_tuner.h"

#include <functional>
#include <map>

#include "gtest/gtest.h"

namespace trainyard::runtime::ring {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
const std::vector<std::int64_t> kSizes = {1 * kMiB, 4 * kMiB, 25 * kMiB, 64 * kMiB};

std::vector<collective::PlannedTensor> tensorsOf(const std::vector<std::int64_t>& mebibytes) {
  std::vector<collective::PlannedTensor> tensors;
  for (const std::int64_t size : mebibytes)
    tensors.push_back({"t", ElementType::kFloat32, size * kMiB / 4});
  return tensors;
}

TEST(BucketTunerTest, OnlySizesThatDifferAreTried) {
  using Sizes = std::vector<std::int64_t>;
  EXPECT_EQ(differingSizes(tensorsOf({1}), kSizes), Sizes({kMiB}));
  EXPECT_EQ(differingSizes(tensorsOf({}), kSizes), Sizes({kMiB}));
  EXPECT_EQ(differingSizes(tensorsOf({100}), kSizes), Sizes({kMiB})) << "never cut";
  EXPECT_EQ(differingSizes(tensorsOf({1, 1, 1, 1}), kSizes), Sizes({kMiB, 4 * kMiB}));
  EXPECT_EQ(differingSizes(tensorsOf(Sizes(100, 1)), kSizes), kSizes);
  // Both of 5 MiB fit only in more than 4.
  EXPECT_EQ(differingSizes(tensorsOf({5, 5, 5}), kSizes), Sizes({kMiB, 25 * kMiB}));
}

// As a group of ranks takes steps; what each size costs a rank. How often each was taken.
std::map<std::int64_t, int> tune(std::vector<BucketTuner>& ranks,
                                 const std::function<double(int, std::int64_t, int)>& cost) {
  std::map<std::int64_t, int> steps;
  for (int step = 0; ranks[0].chosen() == 0 && step < 1000; ++step) {
    const std::int64_t size = ranks[0].size();
    ++steps[size];
    std::vector<double> sums(ranks[0].sizes().size());
    const bool reports = ranks[0].reports();
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      EXPECT_EQ(ranks[r].size(), size);
      EXPECT_EQ(ranks[r].reports(), reports);
      if (!reports) {
        ranks[r].took(cost(static_cast<int>(r), size, step));
        continue;
      }
      const std::vector<double> times = ranks[r].times();
      for (std::size_t i = 0; i < times.size(); ++i) sums[i] += times[i];
    }
    if (!reports) continue;
    for (BucketTuner& rank : ranks) rank.choose(sums, static_cast<int>(ranks.size()));
  }
  return steps;
}

TEST(BucketTunerTest, TheFastestOverAllRanksIsChosen) {
  std::vector<BucketTuner> ranks(2, BucketTuner(kSizes));
  // Rank 0 alone would choose 1 MiB.
  const auto cost = [](int rank, std::int64_t size, int) {
    if (rank == 0) return size == kMiB ? 0.010 : size == 25 * kMiB ? 0.012 : 0.02;
    return size == kMiB ? 0.030 : size == 25 * kMiB ? 0.012 : 0.02;
  };
  const auto steps = tune(ranks, cost);
  for (const BucketTuner& rank : ranks) {
    EXPECT_EQ(rank.chosen(), 25 * kMiB);
    EXPECT_EQ(rank.size(), 25 * kMiB);
    EXPECT_FALSE(rank.reports());
  }
  EXPECT_EQ(ranks[0].summary(),
            "buckets of 25 MiB are the fastest: steps took 20.0 ms with 1 MiB, 20.0 ms with 4 MiB, "
            "12.0 ms with 25 MiB, 20.0 ms with 64 MiB");
  for (const std::int64_t size : kSizes) EXPECT_GE(steps.at(size), BucketTuner::kTries);
  int all = 0;
  for (const auto& [size, count] : steps) all += count;
  EXPECT_EQ(all, BucketTuner::kWarmUp + 4 * BucketTuner::kTries + 1);
}

// The first steps of a run are slow, and now and then one is, whatever the size.
TEST(BucketTunerTest, SingleSlowStepsDecideNothing) {
  std::vector<BucketTuner> ranks(1, BucketTuner({kMiB, 4 * kMiB}));
  tune(ranks, [](int, std::int64_t size, int step) {
    if (step < BucketTuner::kWarmUp) return 100.0;
    if (step == 5 || step == 7) return 9.0;  // with 4 MiB
    return size == kMiB ? 0.2 : 0.1;
  });
  EXPECT_EQ(ranks[0].chosen(), 4 * kMiB);
}

TEST(BucketTunerTest, OneSizeIsNotTried) {
  BucketTuner tuner({25 * kMiB});
  EXPECT_EQ(tuner.chosen(), 25 * kMiB);
  EXPECT_FALSE(tuner.reports());
  tuner.agree(25 * kMiB);
  tuner.took(1);
  EXPECT_EQ(tuner.size(), 25 * kMiB);
}

// A rank that comes later takes what was chosen; where nobody has chosen, all begin anew.
TEST(BucketTunerTest, ANewGroupAgrees) {
  BucketTuner late(kSizes);
  late.agree(4 * kMiB);
  EXPECT_EQ(late.size(), 4 * kMiB);
  late.took(1);
  EXPECT_FALSE(late.reports());
  std::vector<BucketTuner> ranks(2, BucketTuner(kSizes));
  for (int step = 0; step < 7; ++step) ranks[0].took(1);
  for (BucketTuner& rank : ranks) rank.agree(0);
  tune(ranks, [](int, std::int64_t size, int) { return size == 64 * kMiB ? 1.0 : 2.0; });
  for (const BucketTuner& rank : ranks) EXPECT_EQ(rank.chosen(), 64 * kMiB);
}

}  // namespace
}  // namespace trainyard::runtime::ring
