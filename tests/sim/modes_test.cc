// The update modes in which not every gradient counts alike, as whole jobs.
#include <gtest/gtest.h>

#include "tests/sim/run_world.h"

namespace trainyard::sim {
namespace {

using runtime::TicketRules;

TEST(Modes, AQuietAsynchronousJobAppliesExactlyItsSteps) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const int aggregate = 1 + static_cast<int>(seed % 3);
    const WorldResult result = runWorld({.seed = seed,
                                         .ps = 1 + static_cast<int>(seed % 3),
                                         .workers = 1 + static_cast<int>(seed % 4),
                                         .passes = seed % 2 == 0 ? 1 : 0,
                                         .samples = 331,
                                         .tickets = TicketRules{.aggregate = aggregate},
                                         .duplicate = 0.05});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    EXPECT_EQ(result.epochs, 1) << seed;
    EXPECT_EQ(result.partial, 0) << seed;
    EXPECT_EQ(result.accuracy_hits, 50) << seed;
  }
}

TEST(Modes, DeathsOfWorkersLoseAtMostOnePushEach) {
  int kills = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    const WorldResult result =
        runWorld({.seed = seed * 13,
                  .ps = 1 + static_cast<int>(seed % 3),
                  .workers = 2 + static_cast<int>(seed % 2),
                  .tickets = TicketRules{.aggregate = 1 + static_cast<int>(seed % 2)},
                  .kills = 4,
                  .kill_ps = false,
                  .drop = seed % 4 == 0 ? 0.03 : 0.0,
                  .duplicate = 0.05});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    EXPECT_EQ(result.lost_steps, 0) << seed;
    EXPECT_LE(result.partial, result.kills) << seed;
    kills += result.kills;
  }
  EXPECT_GT(kills, 100);
}

TEST(Modes, DeathsOfServersReturnAnAsynchronousJobToACheckpoint) {
  int kills = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const WorldResult result = runWorld({.seed = seed * 1013,
                                         .ps = 1 + static_cast<int>(seed % 3),
                                         .workers = 1 + static_cast<int>(seed % 3),
                                         .steps = 60,
                                         .tickets = TicketRules{},
                                         .kills = 5,
                                         .freezes = static_cast<int>(seed % 2),
                                         .drop = seed % 3 == 0 ? 0.03 : 0.0,
                                         .duplicate = 0.05});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    kills += result.kills;
  }
  EXPECT_GT(kills, 300);
}

TEST(Modes, ABoundedDelayIsReachedAndNeverExceeded) {
  for (const bool all : {false, true}) {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
      const bool quiet = seed % 2 == 0;
      const WorldResult result = runWorld({.seed = seed * 17,
                                           .workers = 2 + static_cast<int>(seed % 3),
                                           .steps = 120,
                                           .tickets = TicketRules{.max_delay = 3, .stop_all = all},
                                           .kills = quiet ? 0 : 3,
                                           .kill_ps = seed % 3 == 0});
      EXPECT_EQ(result.outcome, "succeeded") << seed;
      EXPECT_LE(result.spread, 3) << seed;
      if (quiet) {
        EXPECT_EQ(result.spread, 3) << seed << " all " << all;
      }
    }
  }
}

TEST(Modes, BackupWorkersTakeTheFirstGradients) {
  std::int64_t skipped = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const WorldResult result = runWorld({.seed = seed * 5,
                                         .ps = 1 + static_cast<int>(seed % 3),
                                         .workers = 3 + static_cast<int>(seed % 3),
                                         .backup_workers = 1 + static_cast<int>(seed % 2),
                                         .duplicate = 0.05});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    EXPECT_EQ(result.lost_steps, 0) << seed;
    skipped += result.skipped;
  }
  EXPECT_GT(skipped, 500);
}

TEST(Modes, DeathsWithBackupWorkersLoseNoStep) {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    const bool kill_ps = seed % 3 == 0;
    const WorldResult result = runWorld({.seed = seed * 29,
                                         .ps = 1 + static_cast<int>(seed % 3),
                                         .workers = 3,
                                         .backup_workers = 1,
                                         .kills = 4,
                                         .kill_ps = kill_ps,
                                         .drop = seed % 4 == 0 ? 0.03 : 0.0,
                                         .duplicate = 0.05});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    if (!kill_ps) {
      EXPECT_EQ(result.lost_steps, 0) << seed;
    }
  }
}

// Of any mode; the second time of a request may come when the job is steps and epochs further.
WorldConfig withLateDuplicates(std::uint64_t seed) {
  WorldConfig config{.seed = seed * 31 + 7,
                     .ps = 1 + static_cast<int>(seed % 3),
                     .workers = 1 + static_cast<int>(seed % 4),
                     .steps = 60,
                     .kills = static_cast<int>(seed % 5),
                     .kill_ps = seed % 3 == 0,
                     .freezes = static_cast<int>(seed % 2),
                     .drop = seed % 4 == 0 ? 0.03 : 0.0,
                     .duplicate = 0.15,
                     .late = std::chrono::seconds(1),
                     .small_chunks = seed % 2 == 0};
  const auto kind = seed / 7 % 4;
  if (kind == 1) config.tickets = TicketRules{.aggregate = 1 + static_cast<int>(seed % 2)};
  if (kind == 2 && config.workers > 1) config.backup_workers = 1;
  if (kind == 3) {
    config.tickets = TicketRules{};
    config.ps = 2 + static_cast<int>(seed % 2);
    config.freezes = 0;
    config.one_by_one = true;
    config.replicate_pushes = true;
  }
  return config;
}

TEST(Modes, ARequestMayComeForTheSecondTimeMuchLater) {
  int kills = 0;
  for (std::uint64_t seed = 1; seed <= 240; ++seed) {
    const WorldResult result = runWorld(withLateDuplicates(seed));
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    kills += result.kills;
  }
  EXPECT_GT(kills, 150);
}

// Each fourth job with a backup worker, the others asynchronous.
WorldConfig comingAndGoing(std::uint64_t seed, std::uint64_t number) {
  WorldConfig config{.seed = seed,
                     .ps = 1 + static_cast<int>(number % 3),
                     .workers = 2 + static_cast<int>(number % 3),
                     .steps = 80,
                     .duplicate = 0.05,
                     .scalings = 4};
  if (number % 4 == 0) {
    config.backup_workers = 1;
  } else {
    config.tickets = TicketRules{.aggregate = 1 + static_cast<int>(number % 2)};
  }
  return config;
}

TEST(Modes, WorkersComeAndGo) {
  int scalings = 0;
  int left = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    WorldConfig config = comingAndGoing(seed * 67, seed);
    config.drop = seed % 4 == 0 ? 0.03 : 0.0;
    if (seed % 4 == 1) config.tickets->max_delay = 3;
    const WorldResult result = runWorld(config);
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    EXPECT_EQ(result.lost_steps, 0) << seed;
    EXPECT_EQ(result.partial, 0) << seed;
    EXPECT_EQ(result.steps, 80) << seed;
    if (seed % 4 == 1) {
      EXPECT_LE(result.spread, 3) << seed;
    }
    scalings += result.scalings;
    left += result.left;
  }
  EXPECT_GT(scalings, 250);
  EXPECT_GT(left, 150);
}

TEST(Modes, WorkersComeAndGoAndDie) {
  int kills = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    WorldConfig config = comingAndGoing(seed * 71, seed);
    config.kills = 4;
    config.kill_ps = seed % 3 == 0;
    config.kill_within = std::chrono::milliseconds(600);
    config.drop = seed % 5 == 0 ? 0.03 : 0.0;
    const WorldResult result = runWorld(config);
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    if (!config.kill_ps) {
      EXPECT_EQ(result.lost_steps, 0) << seed;
    }
    kills += result.kills;
  }
  EXPECT_GT(kills, 200);
}

TEST(Modes, AStopComesToRestBetweenTwoUpdates) {
  for (std::uint64_t seed = 1; seed <= 80; ++seed) {
    WorldConfig config{.seed = seed * 3, .workers = 3, .steps = 4000};
    config.stop_at = std::chrono::milliseconds(300 + 5 * seed);
    if (seed % 2 == 0) {
      config.backup_workers = 1;
    } else {
      config.tickets = TicketRules{.aggregate = 1 + static_cast<int>(seed % 3)};
    }
    const WorldResult result = runWorld(config);
    EXPECT_EQ(result.outcome, "stopped") << seed;
    EXPECT_GT(result.stopped_at, 0) << seed;
    EXPECT_EQ(result.lost_steps, 0) << seed;
  }
}

TEST(Modes, TheNumberOfStepsChangesAmidDeaths) {
  int changes = 0;
  for (std::uint64_t seed = 1; seed <= 160; ++seed) {
    WorldConfig config{.seed = seed * 389,
                       .ps = 1 + static_cast<int>(seed % 3),
                       .workers = 2 + static_cast<int>(seed % 3),
                       .steps = 60,
                       .kills = seed % 3 == 0 ? 0 : 3,
                       .kill_ps = seed % 3 == 1,
                       .duplicate = 0.05,
                       .lengths = 3};
    if (seed % 4 == 0) {
      config.backup_workers = 1;
    } else {
      config.tickets = TicketRules{.aggregate = 1 + static_cast<int>(seed % 2)};
      if (seed % 4 == 1) config.tickets->max_delay = 3;
    }
    const WorldResult result = runWorld(config);
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    changes += result.lengths;
  }
  EXPECT_GT(changes, 200);
}

}  // namespace
}  // namespace trainyard::sim
