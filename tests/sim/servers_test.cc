// Servers that join and leave a whole job while it computes, amid everything else that can happen.
#include <gtest/gtest.h>

#include "fmt/format.h"
#include "tests/sim/run_world.h"

namespace trainyard::sim {
namespace {

struct Sum {
  int scalings = 0, left = 0, moved = 0, kills = 0, lost = 0;
  void add(const WorldResult& result) {
    scalings += result.ps_scalings;
    left += result.ps_left;
    moved += result.moved;
    kills += result.kills;
    lost += result.lost_steps > 0;
  }
};

// The weights on their way, the slots in every checkpoint and the number of steps are those of a
// job whose servers never change.
TEST(Servers, ComeAndGoWithoutAnybodyNoticing) {
  Sum sum;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const WorldResult result = runWorld({.seed = seed * 101,
                                         .ps = 1 + static_cast<int>(seed % 3),
                                         .workers = 1 + static_cast<int>(seed % 3),
                                         .steps = 60,
                                         .deterministic = seed % 2 == 0,
                                         .clip_norm = seed % 5 == 0 ? 8.6 : 0,
                                         .drop = seed % 4 == 0 ? 0.03 : 0.0,
                                         .duplicate = 0.05,
                                         .ps_scalings = 4,
                                         .max_ps = 4});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    EXPECT_EQ(result.lost_steps, 0) << seed;
    EXPECT_EQ(result.steps, 60) << seed;
    sum.add(result);
  }
  EXPECT_GT(sum.scalings, 70);
  EXPECT_GT(sum.left, 30);
  EXPECT_GT(sum.moved, 150);
}

TEST(Servers, ComeAndGoTogetherWithWorkers) {
  Sum sum;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const WorldResult result = runWorld({.seed = seed * 389,
                                         .ps = 1 + static_cast<int>(seed % 3),
                                         .workers = 1 + static_cast<int>(seed % 4),
                                         .passes = 2,
                                         .samples = 300,
                                         .batch = 3,
                                         .deterministic = seed % 2 == 0,
                                         .clip_norm = seed % 5 == 0 ? 8.6 : 0,
                                         .drop = seed % 4 == 0 ? 0.03 : 0.0,
                                         .duplicate = 0.05,
                                         .ps_scalings = 3,
                                         .max_ps = 4,
                                         .scalings = 3});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    EXPECT_EQ(result.lost_steps, 0) << seed;
    sum.add(result);
  }
  EXPECT_GT(sum.scalings, 40);
}

TEST(Servers, ComeAndGoAmidDeathsOfWorkers) {
  Sum sum;
  for (std::uint64_t seed = 1; seed <= 80; ++seed) {
    const WorldResult result = runWorld({.seed = seed * 577,
                                         .ps = 1 + static_cast<int>(seed % 3),
                                         .workers = 2 + static_cast<int>(seed % 3),
                                         .passes = 2,
                                         .samples = 300,
                                         .batch = 3,
                                         .global_batch = seed % 3 == 0 ? 11 : 0,
                                         .deterministic = seed % 2 == 0,
                                         .clip_norm = seed % 5 == 0 ? 8.6 : 0,
                                         .kills = 5,
                                         .kill_ps = false,
                                         .kill_within = std::chrono::milliseconds(600),
                                         .drop = seed % 4 == 0 ? 0.03 : 0.0,
                                         .duplicate = 0.05,
                                         .ps_scalings = 4,
                                         .max_ps = 4,
                                         .scalings = seed % 2 == 0 ? 2 : 0});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    EXPECT_EQ(result.lost_steps, 0) << seed;
    sum.add(result);
  }
  EXPECT_GT(sum.kills, 100);
  EXPECT_GT(sum.moved, 150);
}

// Whoever dies in the middle of a move, giver or taker: the job goes on, at worst from a
// checkpoint.
TEST(Servers, ComeAndGoAmidDeathsOfAllKinds) {
  Sum sum;
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    const WorldResult result = runWorld({.seed = seed * 1171,
                                         .ps = 1 + static_cast<int>(seed % 3),
                                         .workers = 1 + static_cast<int>(seed % 3),
                                         .passes = 2,
                                         .samples = 200,
                                         .batch = 3,
                                         .deterministic = seed % 2 == 0,
                                         .kills = 4,
                                         .kill_within = std::chrono::milliseconds(900),
                                         .freezes = seed % 2 == 0 ? 2 : 0,
                                         .drop = seed % 4 == 0 ? 0.03 : 0.0,
                                         .duplicate = 0.05,
                                         .ps_scalings = 4,
                                         .max_ps = 4,
                                         .scalings = seed % 3 == 0 ? 2 : 0});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    sum.add(result);
  }
  EXPECT_GT(sum.kills, 150);
  EXPECT_GT(sum.lost, 2) << "the simulation should reach roll-backs";
}

TEST(Servers, AStopWhileTheyComeAndGoLeavesACheckpoint) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const WorldResult result = runWorld({.seed = seed * 43,
                                         .steps = 300,
                                         .drop = seed % 4 == 0 ? 0.02 : 0.0,
                                         .ps_scalings = 5,
                                         .max_ps = 4,
                                         .scalings = 2,
                                         .scale_within = std::chrono::milliseconds(300),
                                         .stop_at = std::chrono::milliseconds(100 + 3 * seed)});
    EXPECT_EQ(result.outcome, "stopped") << seed;
    EXPECT_EQ(result.lost_steps, 0) << seed;
  }
}

// Modes without common steps, and with backup workers: what was pushed stays pushed, once, wherever
// its chunks go.
TEST(Servers, ComeAndGoInEveryUpdateMode) {
  Sum sum;
  for (std::uint64_t seed = 1; seed <= 80; ++seed) {
    WorldConfig config{.seed = seed * 271,
                       .ps = 1 + static_cast<int>(seed % 3),
                       .workers = 3,
                       .steps = 60,
                       .kills = seed % 3 == 0 ? 3 : 0,
                       .kill_ps = false,
                       .drop = seed % 4 == 0 ? 0.03 : 0.0,
                       .duplicate = 0.05,
                       .ps_scalings = 4,
                       .max_ps = 4,
                       .scalings = seed % 5 == 0 ? 2 : 0};
    if (seed % 4 == 0) {
      config.backup_workers = 1;
    } else {
      config.tickets = runtime::TicketRules{};
      if (seed % 4 == 2) config.tickets->max_delay = 2;
      if (seed % 4 == 3) config.tickets->aggregate = 2;
    }
    const WorldResult result = runWorld(config);
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    EXPECT_EQ(result.lost_steps, 0) << seed;
    EXPECT_EQ(result.steps, 60) << seed;
    sum.add(result);
  }
  EXPECT_GT(sum.scalings, 80);
  EXPECT_GT(sum.moved, 150);
}

}  // namespace
}  // namespace trainyard::sim
