// Servers that die one at a time: the replicas stand in, and no step
// is lost, whoever of them it is and at whatever moment.
#include <gtest/gtest.h>

#include "tests/sim/run_world.h"

namespace trainyard::sim {
namespace {

WorldResult runWithoutLoss(const WorldConfig& config) {
  const WorldResult result = runWorld(config);
  EXPECT_EQ(result.outcome, "succeeded") << config.seed;
  EXPECT_EQ(result.lost_steps, 0) << config.seed;
  return result;
}

TEST(Replicas, StandInForEachServerThatDies) {
  int kills = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const WorldResult result = runWithoutLoss(deathsOneByOne(seed));
    EXPECT_EQ(result.steps, 40) << seed;
    kills += result.kills;
  }
  EXPECT_GT(kills, 500);
}

// The first worker keeps what is needed then.
TEST(Replicas, StandInForAnOnlyServer) {
  int kills = 0;
  int fetched = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    WorldConfig config = deathsOneByOne(seed);
    config.ps = 1;
    config.small_chunks = true;
    config.kill_workers = seed % 2 == 0;
    if (seed % 3 == 0) config.clip_norm = 8.6;
    if (seed % 5 == 0) config.workers = 3, config.backup_workers = 1, config.clip_norm = 0;
    const WorldResult result = runWithoutLoss(config);
    EXPECT_EQ(result.steps, 40) << seed;
    kills += result.kills;
    fetched += result.moved;
  }
  EXPECT_GT(kills, 400);
  EXPECT_GT(fetched, 1000);
}

TEST(Replicas, StandInWhileThereIsSometimesOneServer) {
  int kills = 0;
  int scalings = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    WorldConfig config = deathsOneByOne(seed);
    config.ps = 1 + static_cast<int>(seed % 2);
    config.steps = 60;
    config.kills = 3;
    config.ps_scalings = 4;
    config.min_ps = 1;
    config.max_ps = 2 + static_cast<int>(seed % 2);
    config.scalings = seed % 2 == 0 ? 2 : 0;
    const WorldResult result = runWithoutLoss(config);
    kills += result.kills;
    scalings += result.ps_scalings;
  }
  EXPECT_GT(kills, 150);
  EXPECT_GT(scalings, 200);
}

// Some chunks of a server may have taken a step, with its norm, and others not.
TEST(Replicas, StandInAmidAClippedStep) {
  int kills = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    WorldConfig config = deathsOneByOne(seed);
    config.workers = 2 + static_cast<int>(seed % 2);
    config.clip_norm = 8.6;
    config.drop = seed % 4 == 0 ? 0.1 : 0.0;
    const WorldResult result = runWithoutLoss(config);
    kills += result.kills;
  }
  EXPECT_GT(kills, 250);
}

TEST(Replicas, StandInWithBackupWorkers) {
  for (std::uint64_t seed = 1; seed <= 80; ++seed) {
    WorldConfig config = deathsOneByOne(seed);
    config.workers = 3;
    config.backup_workers = 1;
    runWithoutLoss(config);
  }
}

// What was answered stays, each push once; only the coordinator's ledger has no replica.
TEST(Replicas, StandInWithoutCommonSteps) {
  int kills = 0;
  int fetched = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    WorldConfig config = deathsOneByOne(seed);
    config.replicate_pushes = true;
    config.spare_coordinator = true;
    config.workers = 2 + static_cast<int>(seed % 3);
    config.deterministic = false;
    config.tickets = runtime::TicketRules{.aggregate = 1 + static_cast<int>(seed / 4 % 3)};
    if (seed % 5 == 0) config.tickets->max_delay = 2;
    config.ps_scalings = seed % 7 == 0 ? 2 : 0;
    config.min_ps = 2;
    config.max_ps = 4;
    const WorldResult result = runWithoutLoss(config);
    EXPECT_EQ(result.steps, 40) << seed;
    EXPECT_LE(result.partial, result.worker_kills) << seed;
    kills += result.kills - result.worker_kills;
    fetched += result.moved;
  }
  EXPECT_GT(kills, 300);
  EXPECT_GT(fetched, 500);
}

TEST(Replicas, StandInWhileServersAndWorkersComeAndGo) {
  int kills = 0;
  int scalings = 0;
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    WorldConfig config = deathsOneByOne(seed);
    config.steps = 0;
    config.passes = 2;
    config.samples = 300;
    config.batch = 3;
    config.kills = 3;
    config.ps_scalings = 3;
    config.min_ps = 2;
    config.max_ps = 4;
    config.scalings = seed % 2 == 0 ? 2 : 0;
    const WorldResult result = runWithoutLoss(config);
    kills += result.kills;
    scalings += result.ps_scalings;
  }
  EXPECT_GT(kills, 100);
  EXPECT_GT(scalings, 100);
}

}  // namespace
}  // namespace trainyard::sim
