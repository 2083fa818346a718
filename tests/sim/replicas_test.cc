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

// Without common steps: what was answered stays, each push once, and so does the coordinator's
// ledger of tickets and samples.
WorldConfig pushesHaveReplicas(std::uint64_t seed) {
  WorldConfig config = deathsOneByOne(seed);
  config.replicate_pushes = true;
  config.workers = 2 + static_cast<int>(seed % 3);
  config.deterministic = false;
  config.tickets = runtime::TicketRules{.aggregate = 1 + static_cast<int>(seed / 4 % 3)};
  if (seed % 5 == 0) config.tickets->max_delay = 2;
  return config;
}

WorldConfig inOnePass(WorldConfig config) {
  config.steps = 0;
  config.passes = 1;
  config.samples = 331;
  return config;
}

struct PushSum {
  int kills = 0, coordinators = 0, moved = 0, scalings = 0;
  void run(const WorldConfig& config) {
    const WorldResult result = runWithoutLoss(config);
    const int aggregate = config.tickets->aggregate;
    const std::int64_t pushes = (config.samples + config.batch - 1) / config.batch;
    const bool counted = config.passes == 0;
    EXPECT_EQ(result.steps, counted ? config.steps : (pushes + aggregate - 1) / aggregate)
        << config.seed;
    EXPECT_LE(result.partial, result.worker_kills) << config.seed;
    if (config.tickets->max_delay) {
      EXPECT_LE(result.spread, *config.tickets->max_delay) << config.seed;
    }
    kills += result.kills - result.worker_kills;
    coordinators += result.coordinator_kills;
    moved += result.moved;
    scalings += result.ps_scalings;
  }
};

TEST(Replicas, StandInWithoutCommonSteps) {
  PushSum sum;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    WorldConfig config = pushesHaveReplicas(seed);
    if (seed % 7 == 0) {
      config.ps_scalings = 2;
      config.min_ps = 2;
      config.max_ps = 4;
    }
    sum.run(seed % 7 == 3 ? inOnePass(config) : config);
  }
  EXPECT_GT(sum.kills, 400);
  EXPECT_GT(sum.coordinators, 150);
  EXPECT_GT(sum.moved, 500);
}

TEST(Replicas, StandInForAnOnlyServerWithoutCommonSteps) {
  PushSum sum;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    WorldConfig config = pushesHaveReplicas(seed);
    config.ps = 1;
    config.small_chunks = true;
    sum.run(seed % 4 == 3 ? inOnePass(config) : config);
  }
  EXPECT_GT(sum.coordinators, 200);
  EXPECT_GT(sum.moved, 500);
}

TEST(Replicas, StandInWhileThereIsSometimesOneServerWithoutCommonSteps) {
  PushSum sum;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    WorldConfig config = pushesHaveReplicas(seed);
    config.ps = 1 + static_cast<int>(seed % 3);
    config.ps_scalings = 4;
    config.min_ps = 1;
    config.max_ps = 3;
    sum.run(config);
  }
  EXPECT_GT(sum.coordinators, 100);
  EXPECT_GT(sum.scalings, 200);
}

// The membership that a new coordinator starts with has left a server out, whose chunks nobody else
// holds yet.
TEST(Replicas, StandInForACoordinatorWhileServersLeave) {
  int left_out = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    WorldConfig config = seed % 2 == 0 ? pushesHaveReplicas(seed) : deathsOneByOne(seed);
    config.ps = 4;
    config.steps = 60;
    config.kills = 0;
    config.kill_workers = false;
    config.ps_scalings = 4;
    config.min_ps = 1;
    config.max_ps = 4;
    config.kill_coordinator_of_leavers = true;
    const WorldResult result = runWithoutLoss(config);
    EXPECT_EQ(result.steps, 60) << seed;
    left_out += result.coordinator_kills;
  }
  EXPECT_GT(left_out, 120);
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
