#include "runtime/data/step_plan.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/core/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/data/sample_stream.h"

namespace trainyard::runtime {
namespace {

using Share = StepPlan::Share;

StepPlan plan(int ranks, std::int64_t step_samples, std::int64_t steps, std::int64_t end = 0) {
  StepPlan p;
  p.ranks = ranks;
  p.step_samples = step_samples;
  p.steps = steps;
  p.end_position = end;
  return p;
}

TEST(StepPlan, EqualPiecesInTheOrderOfRanks) {
  StepPlan p = plan(2, 256, 700);
  EXPECT_EQ(p.shareOf(0, 0), (Share{0, 128}));
  EXPECT_EQ(p.shareOf(0, 1), (Share{128, 128}));
  EXPECT_EQ(p.shareOf(3, 1), (Share{7 * 128, 128}));
  EXPECT_EQ(p.positionOf(700), 700 * 256);
  p = plan(3, 30, 100);
  p.first_step = 50;
  p.first_position = 1000;
  EXPECT_EQ(p.shareOf(52, 2), (Share{1000 + 8 * 10, 10}));
}

TEST(StepPlan, TheFirstRanksTakeOneMoreOfWhatDoesNotDivide) {
  const StepPlan p = plan(3, 98, 10);
  EXPECT_EQ(p.shareOf(1, 0), (Share{98, 33}));
  EXPECT_EQ(p.shareOf(1, 1), (Share{98 + 33, 33}));
  EXPECT_EQ(p.shareOf(1, 2), (Share{98 + 66, 32}));
}

// 1,000 samples twice, 96 a step: 20 full steps, the last has 80.
TEST(StepPlan, TheLastStepIsAsShortAsTheStreamMakesIt) {
  EXPECT_EQ(stepsToReach(2000, 0, 0, 96), 21);
  const StepPlan p = plan(3, 96, 21, 2000);
  EXPECT_EQ(p.samplesOf(19), 96);
  EXPECT_EQ(p.samplesOf(20), 80);
  EXPECT_EQ(p.shareOf(20, 0), (Share{1920, 27}));
  EXPECT_EQ(p.shareOf(20, 2), (Share{1974, 26}));
  EXPECT_EQ(p.positionOf(21), 2000);
  EXPECT_EQ(p.samplesOf(21), 0);
  EXPECT_EQ(p.shareOf(21, 0), Share{});
}

TEST(StepPlan, RanksWithoutSamplesHaveNoPart) {
  const StepPlan p = plan(3, 96, 2, 98);
  EXPECT_EQ(p.takers(0), 3);
  EXPECT_EQ(p.takers(1), 2);
  EXPECT_EQ(p.shareOf(1, 0), (Share{96, 1}));
  EXPECT_EQ(p.shareOf(1, 1), (Share{97, 1}));
  EXPECT_EQ(p.shareOf(1, 2).count, 0);
  EXPECT_EQ(p.takers(2), 0);
}

// Batches of 128 for each of 7 workers over 60,000 and over 60,300 samples.
TEST(StepPlan, TheLastBatchesAreWholeAsFarAsTheyGo) {
  StepPlan p = plan(7, 7 * 128, stepsToReach(60'000, 0, 0, 7 * 128), 60'000);
  p.rank_samples = 128;
  ASSERT_EQ(p.steps, 67);
  EXPECT_EQ(p.shareOf(3, 6), (Share{(3 * 7 + 6) * 128, 128}));
  EXPECT_EQ(p.samplesOf(66), 6 * 128 + 96);
  EXPECT_EQ(p.takers(66), 7);
  for (int rank = 0; rank < 6; ++rank) EXPECT_EQ(p.shareOf(66, rank).count, 128);
  EXPECT_EQ(p.shareOf(66, 6), (Share{60'000 - 96, 96}));

  p.end_position = 60'300;
  p.steps = stepsToReach(p.end_position, 0, 0, p.step_samples);
  ASSERT_EQ(p.steps, 68);
  EXPECT_EQ(p.takers(66), 7);
  EXPECT_EQ(p.takers(67), 3);
  EXPECT_EQ(p.shareOf(67, 0).count, 128);
  EXPECT_EQ(p.shareOf(67, 1).count, 128);
  EXPECT_EQ(p.shareOf(67, 2), (Share{60'300 - 12, 12}));
  for (int rank = 3; rank < 7; ++rank) EXPECT_EQ(p.shareOf(67, rank).count, 0);
}

// Of step 10 some chunks were taken from the samples of 4 ranks.
TEST(StepPlan, AFirstStepOfOtherSamplesIsDealtOut) {
  StepPlan p = plan(2, 20, 100);
  p.rank_samples = 10;
  p.first_step = 10;
  p.first_position = 400;
  p.first_samples = 40;
  EXPECT_EQ(p.shareOf(10, 0), (Share{400, 20}));
  EXPECT_EQ(p.shareOf(10, 1), (Share{420, 20}));
  EXPECT_EQ(p.shareOf(11, 0), (Share{440, 10}));
  EXPECT_EQ(p.shareOf(12, 1), (Share{470, 10}));
  p.ranks = 6;
  p.step_samples = 60;
  EXPECT_EQ(p.takers(10), 4);
  EXPECT_EQ(p.shareOf(10, 3), (Share{430, 10}));
  EXPECT_EQ(p.shareOf(10, 4).count, 0);
  EXPECT_EQ(p.takers(11), 6);
  EXPECT_EQ(p.positionOf(12), 500);
}

TEST(StepPlan, StrangersAndOtherStepsReadNothing) {
  StepPlan p = plan(2, 8, 10);
  p.first_step = 4;
  EXPECT_EQ(p.shareOf(3, 0), Share{});
  EXPECT_EQ(p.shareOf(5, -1), Share{});
  EXPECT_EQ(p.shareOf(5, 2), Share{});
  EXPECT_EQ(StepPlan{}.shareOf(0, 0), Share{});
  EXPECT_EQ(StepPlan{}.takers(0), 0);
}

TEST(StepPlan, NothingIsLeftToReadAtTheEnd) {
  EXPECT_EQ(stepsToReach(2000, 7, 2000, 96), 7);
  EXPECT_EQ(stepsToReach(2000, 7, 1999, 96), 8);
  EXPECT_EQ(stepsToReach(96, 0, 0, 96), 1);
}

// Epochs with other numbers of workers, one after the other, as membership changes: together the
// ranks read every position up to the end once, so every pass has every sample once.
TEST(StepPlan, EverySampleOncePerPassAcrossEpochs) {
  Rng rng(11);
  for (int round = 0; round < 200; ++round) {
    const auto samples = static_cast<std::int64_t>(1 + rng.below(200));
    const auto passes = static_cast<std::int64_t>(1 + rng.below(3));
    const auto step_samples = static_cast<std::int64_t>(1 + rng.below(60));
    std::vector<int> used(static_cast<std::size_t>(passes * samples));  // by position
    std::vector<std::int64_t> reads(used.size());
    StepPlan p = plan(1, step_samples, 0, passes * samples);
    SampleStream stream(7, samples);
    while (p.first_position < p.end_position) {
      p.ranks = static_cast<int>(1 + rng.below(5));
      p.steps = stepsToReach(p.end_position, p.first_step, p.first_position, step_samples);
      const std::int64_t next =
          std::min<std::int64_t>(p.steps, p.first_step + 1 + static_cast<int>(rng.below(6)));
      for (std::int64_t step = p.first_step; step < next; ++step) {
        for (int rank = 0; rank < p.ranks; ++rank) {
          const Share share = p.shareOf(step, rank);
          ASSERT_EQ(share.count > 0, rank < p.takers(step));
          std::vector<std::int64_t> read(static_cast<std::size_t>(share.count));
          stream.lookUp(share.first, read);
          for (int i = 0; i < share.count; ++i) {
            ++used.at(static_cast<std::size_t>(share.first + i));
            reads.at(static_cast<std::size_t>(share.first + i)) = read[static_cast<std::size_t>(i)];
          }
        }
      }
      p.first_position = p.positionOf(next);
      p.first_step = next;
    }
    ASSERT_EQ(p.first_step, p.steps);
    ASSERT_THAT(used, testing::Each(1));
    for (std::int64_t pass = 0; pass < passes; ++pass) {
      const std::set<std::int64_t> seen(reads.begin() + pass * samples,
                                        reads.begin() + (pass + 1) * samples);
      ASSERT_EQ(static_cast<std::int64_t>(seen.size()), samples) << "pass " << pass;
    }
  }
}

}  // namespace
}  // namespace trainyard::runtime
