// Ranks that update their weights themselves: from sums to the next version. What one of them does
// alone is in tests/conformance/synchronizer.
#include <thread>

#include "gtest/gtest.h"
#include "tests/runtime/ring/ring_views.h"

namespace trainyard::runtime::ring {
namespace {

constexpr int kOwnRanks = 2;
constexpr int kOwnSteps = 3;
constexpr std::size_t kOwnElements = 4;

// Its optimizer multiplies the mean of a step s by s + 1, and adds it.
struct OwnRank {
  OwnRank(int rank, News& news) {
    v1::OptimizerSpec spec;
    spec.set_name("SGD");
    spec.set_learning_rate(1);
    unused = *makeOptimizer(spec);
    v1::PlacementSpec all;
    all.set_strategy("Balanced");
    Variable variable;
    variable.name = "w";
    variable.shape = {static_cast<std::int64_t>(kOwnElements)};
    placement = *place(all, {variable}, 1);
    RingSynchronizerOptions options;
    options.worker.index = static_cast<std::uint32_t>(rank);
    options.worker.evaluates = false;
    options.worker.tells_standing = true;
    options.exchange.token = "token";
    options.load = [this](const v1::EpochInfo&, const LoadChunk& load) {
      const std::vector<float> ones(kOwnElements, 1.0F);
      for (std::uint32_t c = 0; c < placement.chunks.size(); ++c) load(c, 0, ones, {});
      return absl::OkStatus();
    };
    options.write = [](const Snapshot&) { return v1::ShardFile(); };
    synchronizer = std::make_unique<RingSynchronizer>(
        options, placement, std::vector<std::span<float>>{weights}, *unused, LearningRate(spec),
        systemClock(), [&news] { news.tell(); });
  }

  // Its steps, with a gradient of `value` for each sample.
  Status train(float value) {
    for (int step = 0; step < kOwnSteps; ++step) {
      TY_ASSIGN_OR_RETURN(const Turn turn, synchronizer->next());
      if (turn.kind != Turn::Kind::kTrain || turn.step != step)
        return absl::InternalError("another turn");
      samples += turn.samples;
      if (turn.samples > 0) {
        auto sum = std::make_shared<std::vector<float>>(kOwnElements,
                                                        value * static_cast<float>(turn.samples));
        synchronizer->push({0, *sum, sum});
      }
      TY_ASSIGN_OR_RETURN(const auto summed,
                          synchronizer->sum({2.0 * turn.samples, turn.samples, turn.samples / 2}));
      if (!summed) return absl::InternalError("the step was not taken");
      for (std::size_t i = 0; i < kOwnElements; ++i)
        weights[i] += summed->means[0][i] * static_cast<float>(step + 1);
      const StepOutcome outcome = synchronizer->commit();
      if (!outcome.complete || outcome.loss != 2.0) return absl::InternalError("another outcome");
      if (!outcome.accuracy || *outcome.accuracy > 0.5) return absl::InternalError("hits");
    }
    return absl::OkStatus();
  }

  std::unique_ptr<Optimizer> unused;
  Placement placement;
  std::vector<float> weights = std::vector<float>(kOwnElements);
  int samples = 0;
  std::unique_ptr<RingSynchronizer> synchronizer;
};

// Samples of a step, and each rank's of them; what each rank has read in all steps.
struct Deal {
  std::int64_t step_samples;
  std::int64_t rank_samples;
  std::vector<int> read;
};

class StepCommitTest : public testing::TestWithParam<Deal> {};

// The second deal leaves nothing for the second rank, which updates its weights all the same.
TEST_P(StepCommitTest, AllRanksMakeTheSameVersions) {
  News news;
  RingViews views;
  std::vector<std::unique_ptr<OwnRank>> ranks;
  for (int r = 0; r < kOwnRanks; ++r) {
    ranks.push_back(std::make_unique<OwnRank>(r, news));
    ASSERT_TRUE(ranks.back()->synchronizer->open().ok());
    views.add(*ranks.back()->synchronizer);
  }
  views.prepare(GetParam().step_samples, GetParam().rank_samples);
  std::vector<Status> results(kOwnRanks);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    threads.emplace_back([&, r] { results[r] = ranks[r]->train(5.0F); });
  EXPECT_TRUE(news.await([&] { return views.prepared(); }));
  views.show(v1::PHASE_ACTIVE);
  for (std::thread& thread : threads) thread.join();
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    EXPECT_TRUE(results[r].ok()) << results[r];
    EXPECT_EQ(ranks[r]->weights, std::vector<float>(kOwnElements, 1.0F + 5.0F * (1 + 2 + 3))) << r;
    EXPECT_EQ(ranks[r]->samples, GetParam().read[r]) << r;
  }
}

INSTANTIATE_TEST_SUITE_P(Deals, StepCommitTest,
                         testing::Values(Deal{4, 2, {6, 6}}, Deal{2, 2, {6, 0}}));

}  // namespace
}  // namespace trainyard::runtime::ring
