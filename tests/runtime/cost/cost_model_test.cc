#include "runtime/cost/cost_model.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/core/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard::runtime {
namespace {

using ::testing::ElementsAre;

constexpr double kVgg19 = 143'667'240.0 * 4;
constexpr double kResNet50 = 25.6e6 * 4;
constexpr double kMnistCnn = 3'274'634.0 * 4;

CostInput input(double bytes, double bits_per_second, double step_seconds, Duplex duplex) {
  return {bytes, bits_per_second, step_seconds, duplex, 0};
}

// Seconds of one worker's step in an even split: what is to be small.
double unitSeconds(const CostInput& in, int workers, int machines) {
  return dedicatedServersSeconds(in, workers, 1.0 / (machines - workers)) / workers;
}

Split bruteForce(const CostInput& in, int machines) {
  Split best{1, machines - 1};
  for (int workers = 2; workers < machines; ++workers) {
    if (unitSeconds(in, workers, machines) < unitSeconds(in, best.workers, machines))
      best = {workers, machines - workers};
  }
  return best;
}

TEST(CostModel, PublishedSplits) {
  const auto half = Duplex::kHalf;
  EXPECT_EQ(bestSplit(input(kVgg19, 10e9, 0.6, half), 16), (Split{8, 8}));
  EXPECT_EQ(bestSplit(input(kResNet50, 10e9, 0.3, half), 16), (Split{9, 7}));
  EXPECT_EQ(bestSplit(input(kResNet50, 25e9, 0.3, half), 16), (Split{11, 5}));
  EXPECT_NEAR(bestWorkerShare(input(kVgg19, 10e9, 0.6, half)), 0.5, 1e-9);
  EXPECT_NEAR(bestWorkerShare(input(kResNet50, 10e9, 0.3, half)), 0.575, 5e-4);
  EXPECT_NEAR(bestWorkerShare(input(kResNet50, 25e9, 0.3, half)), 0.68, 2e-3);
}

TEST(CostModel, ClosedFormIsBruteForceWithinOneMachine) {
  Rng rng(5);
  const auto between = [&](double low, double high) {  // even on a logarithmic scale
    return low * std::pow(high / low, rng.unit());
  };
  int clipped = 0;
  for (int i = 0; i < 20'000; ++i) {
    const CostInput in = input(between(1e4, 1e11), between(1e7, 4e11), between(1e-3, 100),
                               rng.below(2) == 0 ? Duplex::kFull : Duplex::kHalf);
    const int machines = 2 + int(rng.below(200));
    const Split exact = bruteForce(in, machines);
    const double share = bestWorkerShare(in);
    const int closed = std::clamp(int(std::lround(share * machines)), 1, machines - 1);
    ASSERT_LE(std::abs(closed - exact.workers), 1)
        << "D " << in.model_bytes << " B " << in.bits_per_second << " T0 " << in.step_seconds
        << " n " << machines;
    const Split chosen = bestSplit(in, machines);
    ASSERT_EQ(chosen.workers + chosen.servers, machines);
    ASSERT_NEAR(unitSeconds(in, chosen.workers, machines), unitSeconds(in, exact.workers, machines),
                1e-12 * unitSeconds(in, exact.workers, machines));
    clipped += share == 0.5;
  }
  EXPECT_GT(clipped, 2000) << "both branches of the formula are in the range";
  EXPECT_LT(clipped, 18'000);
}

TEST(CostModel, StepsByHand) {
  // c = 1 s full, 2 s half.
  const CostInput full = input(125e6, 1e9, 3, Duplex::kFull);
  const CostInput half = input(125e6, 1e9, 3, Duplex::kHalf);
  EXPECT_DOUBLE_EQ(dedicatedServersSeconds(full, 6, 0.5), 3 + 3);
  EXPECT_DOUBLE_EQ(dedicatedServersSeconds(half, 6, 0.5), 3 + 6);
  EXPECT_DOUBLE_EQ(dedicatedServersSeconds(full, 6, 1), 3 + 6) << "one hot server is one server";
  EXPECT_DOUBLE_EQ(dedicatedServersSeconds(full, 2, 0.25), 3 + 1) << "the worker's own link";
  EXPECT_DOUBLE_EQ(ringSeconds(full, 4), 3 + 1.5);
  EXPECT_DOUBLE_EQ(ringSeconds(half, 4), 3 + 3);
  EXPECT_DOUBLE_EQ(colocatedServersSeconds(full, 4), ringSeconds(full, 4));
  EXPECT_DOUBLE_EQ(ringSeconds(full, 1), 3);
  EXPECT_DOUBLE_EQ(colocatedServersSeconds(full, 1), 3);
}

TEST(CostModel, LatencyCountsHops) {
  CostInput in = input(125e6, 1e9, 3, Duplex::kFull);
  in.latency_seconds = 0.01;
  EXPECT_NEAR(dedicatedServersSeconds(in, 6, 0.5), 6.02, 1e-12);
  EXPECT_NEAR(colocatedServersSeconds(in, 4), 4.52, 1e-12);
  EXPECT_NEAR(ringSeconds(in, 4), 4.56, 1e-12);
  EXPECT_DOUBLE_EQ(colocatedServersSeconds(in, 1), 3) << "nobody to talk to";
  EXPECT_DOUBLE_EQ(ringSeconds(in, 1), 3);
}

// With equal, paid-for machines a ring is never slower than dedicated servers.
TEST(CostModel, DedicatedServersNeverBeatTheRing) {
  for (const double step : {0.01, 0.1, 1.0, 10.0}) {
    for (const int n : {2, 3, 8, 64, 512}) {
      const CostInput in = input(kVgg19, 10e9, step, Duplex::kFull);
      const Split split = bestSplit(in, n);
      const double servers = efficiency(
          in, split.workers, n, dedicatedServersSeconds(in, split.workers, 1.0 / split.servers));
      EXPECT_LE(servers, efficiency(in, n, n, ringSeconds(in, n)) + 1e-12) << step << " " << n;
    }
  }
}

// The comparison of placements: 7 workers, 2 servers, mnist_cnn, 1 Gbit/s.
TEST(CostModel, AHotServerTakesTwiceTheTime) {
  const CostInput in = input(kMnistCnn, 1e9, 0.2, Duplex::kFull);
  const JobSeconds hot = predictJob(in, 7, {{4'520}, {13'094'016}});
  EXPECT_NEAR(hot.servers[1].in, 0.7333, 5e-4);
  EXPECT_NEAR(hot.servers[1].out, 0.7333, 5e-4);
  EXPECT_NEAR(hot.servers[0].in, 0.000253, 1e-6);
  EXPECT_NEAR(hot.worker.out, 0.1048, 5e-4);
  EXPECT_NEAR(hot.step, 0.9333, 5e-4);
  EXPECT_NEAR(hot.overlapped, 0.7333, 5e-4);
  const JobSeconds even = predictJob(in, 7, {{6'549'268}, {6'549'268}});
  EXPECT_NEAR(even.servers[0].in, 0.3668, 5e-4);
  EXPECT_DOUBLE_EQ(even.step, dedicatedServersSeconds(in, 7, 0.5));
}

TEST(CostModel, PredictionKnowsDuplexLatencyAndTheWorkersLink) {
  CostInput in = input(0, 8e6, 1, Duplex::kHalf);
  in.latency_seconds = 0.25;
  const JobSeconds one = predictJob(in, 1, {{500'000}, {500'000}});
  EXPECT_DOUBLE_EQ(one.servers[0].in, 0.5);
  EXPECT_DOUBLE_EQ(one.communication, 2 * 1.0 + 0.5) << "the worker pushes to both";
  EXPECT_DOUBLE_EQ(one.step, 3.5);
  EXPECT_DOUBLE_EQ(one.overlapped, 2.5);
}

// As if there were one worker more, where each server keeps as much as it gives away.
TEST(CostModel, MeanGradientsOfReplicasAreCarriedToo) {
  const CostInput full = input(kMnistCnn, 1e9, 0.2, Duplex::kFull);
  const JobSeconds even =
      predictJob(full, 7, {{6'549'268, 6'549'268, 6'549'268}, {6'549'268, 6'549'268, 6'549'268}});
  EXPECT_DOUBLE_EQ(even.communication,
                   predictJob(full, 8, {{6'549'268}, {6'549'268}}).communication);
  EXPECT_DOUBLE_EQ(even.worker.out, predictJob(full, 7, {{6'549'268}, {6'549'268}}).worker.out);
  // An only server gives and keeps none: half-duplex links take one direction after the other.
  for (const auto& [duplex, carried] : {std::pair{Duplex::kFull, 8.0}, {Duplex::kHalf, 15.0}}) {
    const CostInput in = input(0, 8e6, 0, duplex);
    const JobSeconds only = predictJob(in, 7, {{1'000'000, 0, 1'000'000}});
    EXPECT_DOUBLE_EQ(only.servers[0].in, 7);
    EXPECT_DOUBLE_EQ(only.servers[0].out, 8);
    EXPECT_DOUBLE_EQ(only.communication, carried);
  }
}

TEST(CostModel, Doublings) {
  EXPECT_THAT(doublings(1, 128), ElementsAre(1, 2, 4, 8, 16, 32, 64, 128));
  EXPECT_THAT(doublings(3, 20), ElementsAre(3, 6, 12, 20));
  EXPECT_THAT(doublings(5, 5), ElementsAre(5));
  EXPECT_EQ(doublings(1'500'000'000, 2'000'000'000).size(), 2u) << "no overflow";
}

}  // namespace
}  // namespace trainyard::runtime
