// Strategy AllReduce as whole jobs: whoever dies, also with the coordinator, where another holds
// the state no step is lost.
#include <gtest/gtest.h>

#include "tests/sim/ring_world.h"

namespace trainyard::sim {
namespace {

RingResult runRing(const RingConfig& config) {
  RingResult result = RingWorld(config).run();
  EXPECT_EQ(result.problem, "") << "seed " << config.seed << " workers " << config.workers
                                << " kills " << config.kills;
  return result;
}

TEST(RingSimulation, AQuietJobTakesAllStepsUnderOneEpoch) {
  for (int workers = 1; workers <= 5; ++workers) {
    const RingResult result = runRing({.seed = 7, .workers = workers});
    EXPECT_EQ(result.outcome, "succeeded");
    EXPECT_EQ(result.epochs, 1);
    EXPECT_EQ(result.lost_steps, 0);
    EXPECT_EQ(result.failures, 0);
  }
}

TEST(RingSimulation, DeathsOneByOneLoseNoStep) {
  int kills = 0;
  int first = 0;
  int halves = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const RingResult result = runRing({.seed = seed * 7919,
                                       .workers = 2 + static_cast<int>(seed % 3),
                                       .steps = 40,
                                       .kills = 4,
                                       .one_by_one = true,
                                       .kill_within = std::chrono::milliseconds(400),
                                       .drop = seed % 4 == 0 ? 0.03 : 0.0});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    EXPECT_EQ(result.lost_steps, 0) << seed;
    EXPECT_EQ(result.steps, 40) << seed;
    kills += result.kills;
    first += result.first_kills;
    halves += result.halves;
  }
  EXPECT_GT(kills, 500);
  EXPECT_GT(first, 100) << "the coordinator dies as well";
  EXPECT_GT(halves, 30) << "in the middle of a step that some have taken";
}

TEST(RingSimulation, DeathsOfAllKindsReturnAtWorstToACheckpoint) {
  int kills = 0;
  int returns = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const RingResult result = runRing({.seed = seed * 1009,
                                       .workers = 1 + static_cast<int>(seed % 3),
                                       .kills = 5,
                                       .drop = seed % 3 == 0 ? 0.03 : 0.0});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    kills += result.kills;
    returns += result.returns;
  }
  EXPECT_GT(kills, 250);
  EXPECT_GT(returns, 5) << "the simulation should reach roll-backs";
}

TEST(RingSimulation, ScalingUsesEverySampleOnce) {
  int scalings = 0;
  int left = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const RingResult result = runRing({.seed = seed * 683,
                                       .workers = 1 + static_cast<int>(seed % 4),
                                       .passes = 2,
                                       .samples = 300 + static_cast<std::int64_t>(seed % 20),
                                       .batch = 3,
                                       .global_batch = seed % 3 == 0 ? 11 : 0,
                                       .drop = seed % 4 == 0 ? 0.03 : 0.0,
                                       .scalings = 4});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    EXPECT_EQ(result.lost_steps, 0) << seed;
    scalings += result.scalings;
    left += result.left;
  }
  EXPECT_GT(scalings, 250);
  EXPECT_GT(left, 100);
}

TEST(RingSimulation, ScalingAmidDeathsOneByOneLosesNoStep) {
  int kills = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const RingResult result = runRing({.seed = seed * 911,
                                       .workers = 2 + static_cast<int>(seed % 3),
                                       .passes = 2,
                                       .samples = 300,
                                       .batch = 3,
                                       .kills = 3,
                                       .one_by_one = true,
                                       .kill_within = std::chrono::milliseconds(600),
                                       .drop = seed % 4 == 0 ? 0.03 : 0.0,
                                       .scalings = 3,
                                       .min_workers = 2});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    EXPECT_EQ(result.lost_steps, 0) << seed;
    kills += result.kills;
  }
  EXPECT_GT(kills, 200);
}

TEST(RingSimulation, AStopLeavesACheckpointOfTheStepReached) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const RingResult result = runRing({.seed = seed * 77,
                                       .steps = 300,
                                       .drop = seed % 4 == 0 ? 0.02 : 0.0,
                                       .stop_at = std::chrono::milliseconds(150 + 5 * seed)});
    EXPECT_EQ(result.outcome, "stopped") << seed;
    EXPECT_EQ(result.lost_steps, 0) << seed;
  }
}

}  // namespace
}  // namespace trainyard::sim
