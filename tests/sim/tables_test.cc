// Jobs with embedding tables, in a world where messages are lost, come twice and late, and tasks
// die: every row that a worker computes with, and every snapshot, is the reference's.
#include <gtest/gtest.h>

#include "tests/sim/run_world.h"

namespace trainyard::sim {
namespace {

TEST(Tables, AQuietJob) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const WorldResult result = runWorld({.seed = seed,
                                         .ps = 1 + static_cast<int>(seed % 3),
                                         .workers = 1 + static_cast<int>(seed % 4),
                                         .passes = seed % 2 == 0 ? 1 : 0,
                                         .samples = 331,
                                         .duplicate = 0.05,
                                         .tables = true,
                                         .unforeseen = seed % 2 == 1});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    EXPECT_EQ(result.epochs, 1) << seed;
    EXPECT_EQ(result.lost_steps, 0) << seed;
  }
}

TEST(Tables, DeathsOfWorkersLoseNoStep) {
  int kills = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    const WorldResult result = runWorld({.seed = seed * 911,
                                         .ps = 1 + static_cast<int>(seed % 3),
                                         .workers = 2 + static_cast<int>(seed % 2),
                                         .kills = 4,
                                         .kill_ps = false,
                                         .freezes = static_cast<int>(seed % 2),
                                         .drop = seed % 4 == 0 ? 0.03 : 0.0,
                                         .duplicate = 0.05,
                                         .late = std::chrono::milliseconds(seed % 5 == 0 ? 40 : 0),
                                         .tables = true,
                                         .unforeseen = seed % 2 == 1});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    EXPECT_EQ(result.lost_steps, 0) << seed;
    kills += result.kills;
  }
  EXPECT_GT(kills, 400);
}

// Workers come and go while steps are under way: who has which samples changes with the epoch.
TEST(Tables, WorkersComeAndGo) {
  int scalings = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const WorldResult result = runWorld({.seed = seed * 127,
                                         .ps = 1 + static_cast<int>(seed % 3),
                                         .workers = 1 + static_cast<int>(seed % 3),
                                         .steps = 60,
                                         .global_batch = seed % 2 == 0 ? 12 : 0,
                                         .kills = static_cast<int>(seed % 3),
                                         .kill_ps = false,
                                         .drop = seed % 4 == 0 ? 0.02 : 0.0,
                                         .duplicate = 0.05,
                                         .tables = true,
                                         .unforeseen = seed % 4 >= 2,
                                         .scalings = 5});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    EXPECT_EQ(result.lost_steps, 0) << seed;
    scalings += result.scalings;
  }
  EXPECT_GT(scalings, 500);
}

// Any one process at any moment.
TEST(Tables, DeathsOfServersLoseNoStep) {
  int kills = 0, worker_kills = 0, moved = 0, replicas = 0, copied = 0;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    const WorldResult result = runWorld({.seed = seed * 2003,
                                         .ps = 1 + static_cast<int>(seed % 3),
                                         .workers = 1 + static_cast<int>(seed % 3),
                                         .steps = 60,
                                         .kills = 5,
                                         .one_by_one = true,
                                         .drop = seed % 3 == 0 ? 0.03 : 0.0,
                                         .duplicate = 0.05,
                                         .late = std::chrono::milliseconds(seed % 5 == 0 ? 40 : 0),
                                         .tables = true,
                                         .unforeseen = seed % 2 == 1,
                                         .small_chunks = seed % 4 == 0});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    EXPECT_EQ(result.lost_steps, 0) << seed;
    kills += result.kills;
    worker_kills += result.worker_kills;
    moved += result.moved;
    replicas += result.replicas;
    copied += result.copied;
  }
  EXPECT_GT(copied, 5000);
  EXPECT_GT(kills - worker_kills, 400);
  EXPECT_GT(moved, 1000);
  EXPECT_GT(replicas, 1000);
}

TEST(Tables, ServersComeAndGo) {
  int scalings = 0, moved = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const WorldResult result = runWorld({.seed = seed * 641,
                                         .ps = 1 + static_cast<int>(seed % 3),
                                         .workers = 1 + static_cast<int>(seed % 3),
                                         .steps = 60,
                                         .kills = static_cast<int>(seed % 3),
                                         .one_by_one = true,
                                         .drop = seed % 4 == 0 ? 0.03 : 0.0,
                                         .duplicate = 0.05,
                                         .tables = true,
                                         .replicate = seed % 5 != 0,
                                         .unforeseen = seed % 2 == 1,
                                         .ps_scalings = 3,
                                         .max_ps = 4});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    EXPECT_EQ(seed % 3 == 0 ? result.lost_steps : 0, 0) << seed << ": nobody has died";
    scalings += result.ps_scalings;
    moved += result.moved;
  }
  EXPECT_GT(scalings, 400);
  EXPECT_GT(moved, 3000);
}

// What is on the disk in the end is many deltas on few whole ones, and is gone back to.
TEST(Tables, Deltas) {
  int deltas = 0, checkpoints = 0;
  std::int64_t lost = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const WorldResult result = runWorld({.seed = seed * 1543,
                                         .ps = 1 + static_cast<int>(seed % 3),
                                         .workers = 1 + static_cast<int>(seed % 3),
                                         .steps = 90,
                                         .kills = static_cast<int>(seed % 4),
                                         .kill_within = std::chrono::seconds(4),
                                         .drop = seed % 3 == 0 ? 0.03 : 0.0,
                                         .duplicate = 0.05,
                                         .tables = true,
                                         .replicate = seed % 2 == 0,
                                         .deltas = true,
                                         .ps_scalings = static_cast<int>(seed % 2),
                                         .max_ps = 3});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    checkpoints += result.checkpoints;
    deltas += result.deltas;
    lost += result.lost_steps;
  }
  EXPECT_GT(checkpoints, 1000);
  EXPECT_GT(deltas, 300);
  EXPECT_GT(lost, 0) << "none of them was read";
}

// Without replicas, or of several at once.
TEST(Tables, DeathsOfServersReturnToACheckpoint) {
  int kills = 0;
  std::int64_t lost = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const WorldResult result = runWorld({.seed = seed * 1009,
                                         .ps = 1 + static_cast<int>(seed % 3),
                                         .workers = 1 + static_cast<int>(seed % 3),
                                         .steps = 60,
                                         .kills = 4,
                                         .drop = seed % 3 == 0 ? 0.03 : 0.0,
                                         .duplicate = 0.05,
                                         .tables = true,
                                         .replicate = seed % 2 == 0,
                                         .unforeseen = seed % 2 == 1});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    kills += result.kills;
    lost += result.lost_steps;
  }
  EXPECT_GT(kills, 300);
  EXPECT_GT(lost, 0);
}

// Without common steps: what each push brings is in the rows once.
WorldConfig ticketed(std::uint64_t seed) {
  WorldConfig config{.seed = seed * 523,
                     .ps = 1 + static_cast<int>(seed % 3),
                     .workers = 1 + static_cast<int>(seed % 4),
                     .steps = 60,
                     .tickets = runtime::TicketRules{.aggregate = 1 + static_cast<int>(seed % 2)},
                     .duplicate = 0.05,
                     .tables = true,
                     .unforeseen = seed % 2 == 1};
  if (seed % 4 == 0) config.tickets->max_delay = 2;
  if (seed % 3 == 0) config.drop = 0.03;
  if (seed % 5 == 0) config.late = std::chrono::milliseconds(40);
  return config;
}

TEST(PushedTables, AQuietJob) {
  int checked = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    const WorldResult result = runWorld(ticketed(seed));
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    checked += result.pushed_rows_checked;
  }
  EXPECT_GE(checked, 150);
}

TEST(PushedTables, DeathsOfWorkersAndWorkersThatComeAndGo) {
  int kills = 0, scalings = 0, checked = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    WorldConfig config = ticketed(seed);
    config.kills = static_cast<int>(seed % 4);
    config.kill_ps = false;
    config.freezes = static_cast<int>(seed % 2);
    if (seed % 2 == 0) config.scalings = 4;
    const WorldResult result = runWorld(config);
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    kills += result.kills;
    scalings += result.scalings;
    checked += result.pushed_rows_checked;
  }
  EXPECT_GT(kills, 200);
  EXPECT_GT(scalings, 200);
  EXPECT_GE(checked, 300);
}

TEST(PushedTables, DeathsOfServersLoseNoPush) {
  int kills = 0, checked = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    WorldConfig config = ticketed(seed);
    config.kills = 4;
    config.one_by_one = true;
    config.replicate_pushes = true;
    if (seed % 4 == 1) config.ps_scalings = 2, config.max_ps = 3;
    const WorldResult result = runWorld(config);
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    EXPECT_EQ(result.lost_steps, 0) << seed;
    kills += result.kills - result.worker_kills;
    checked += result.pushed_rows_checked;
  }
  EXPECT_GT(kills, 400);
  EXPECT_GE(checked, 400);
}

TEST(PushedTables, BackupWorkers) {
  int skipped = 0, kills = 0, checked = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    WorldConfig config = ticketed(seed);
    config.tickets.reset();
    config.workers = 3 + static_cast<int>(seed % 2);
    config.backup_workers = 1;
    config.kills = static_cast<int>(seed % 3);
    config.kill_ps = false;
    const WorldResult result = runWorld(config);
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    skipped += result.skipped;
    kills += result.kills;
    checked += result.pushed_rows_checked;
  }
  EXPECT_GT(skipped, 150);
  EXPECT_GT(kills, 70);
  EXPECT_GE(checked, 150);
}

TEST(PushedTables, DeathsOfServersReturnToACheckpoint) {
  int kills = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    WorldConfig config = ticketed(seed);
    config.kills = 4;
    const WorldResult result = runWorld(config);
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    kills += result.kills;
  }
  EXPECT_GT(kills, 150);
}

}  // namespace
}  // namespace trainyard::sim
