#include <gtest/gtest.h>

#include "fmt/format.h"
#include "tests/sim/run_world.h"

namespace trainyard::sim {
namespace {

TEST(Simulation, AQuietJobTakesAllStepsUnderOneEpoch) {
  const WorldResult result = runWorld({.seed = 7});
  EXPECT_EQ(result.outcome, "succeeded");
  EXPECT_EQ(result.epochs, 1);
  EXPECT_EQ(result.lost_steps, 0);
  EXPECT_EQ(result.accuracy_hits, 49);  // 17 + 16 + 16: every slice counted once
}

TEST(Simulation, TheSameSeedGivesTheSameRun) {
  const WorldConfig config{.seed = 11, .kills = 3, .drop = 0.02};
  const WorldResult a = runWorld(config);
  const WorldResult b = runWorld(config);
  EXPECT_EQ(a.epochs, b.epochs);
  EXPECT_EQ(a.lost_steps, b.lost_steps);
  EXPECT_EQ(a.checkpoints, b.checkpoints);
}

TEST(Simulation, DeathsOfWorkersLoseNoStep) {
  int kills = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    const WorldResult result = runWorld({.seed = seed,
                                         .ps = 1 + static_cast<int>(seed % 3),
                                         .workers = 2 + static_cast<int>(seed % 2),
                                         .deterministic = seed % 2 == 0,
                                         .kills = 4,
                                         .kill_ps = false,
                                         .drop = seed % 4 == 0 ? 0.03 : 0.0,
                                         .duplicate = 0.05});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    EXPECT_EQ(result.lost_steps, 0) << seed;
    kills += result.kills;
  }
  EXPECT_GT(kills, 120);
}

TEST(Simulation, DeathsOfServersReturnToACommittedCheckpoint) {
  int kills = 0;
  int losses = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const WorldResult result = runWorld({.seed = seed * 1009,
                                         .ps = 1 + static_cast<int>(seed % 3),
                                         .workers = 1 + static_cast<int>(seed % 3),
                                         .deterministic = seed % 2 == 0,
                                         .kills = 5,
                                         .drop = seed % 3 == 0 ? 0.03 : 0.0,
                                         .duplicate = 0.05});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    kills += result.kills;
    losses += result.lost_steps > 0;
  }
  EXPECT_GT(kills, 500);
  EXPECT_GT(losses, 5) << "the simulation should reach roll-backs";
}

// With three workers norms lie around 8.6: some steps are clipped, some are not. With fewer all
// are.
constexpr double kClip = 8.6;

TEST(Simulation, AClippedJobTakesAllStepsUnderOneEpoch) {
  for (int ps = 1; ps <= 6; ++ps) {  // up to one without variables
    const WorldResult result = runWorld({.seed = 7, .ps = ps, .clip_norm = kClip});
    EXPECT_EQ(result.outcome, "succeeded");
    EXPECT_EQ(result.epochs, 1);
    EXPECT_GT(result.clipped, 3);
    EXPECT_LT(result.clipped, 27);
  }
}

TEST(Simulation, DeathsOfWorkersLoseNoClippedStep) {
  int kills = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    const WorldResult result = runWorld({.seed = seed * 31,
                                         .ps = 1 + static_cast<int>(seed % 4),
                                         .workers = 2 + static_cast<int>(seed % 2),
                                         .deterministic = seed % 2 == 0,
                                         .clip_norm = kClip,
                                         .kills = 4,
                                         .kill_ps = false,
                                         .drop = seed % 4 == 0 ? 0.03 : 0.0,
                                         .duplicate = 0.05});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    EXPECT_EQ(result.lost_steps, 0) << seed;
    kills += result.kills;
  }
  EXPECT_GT(kills, 120);
}

// Views are lost so often that epochs end while one server knows the norm of a step and has taken
// it, and another has not heard of it: the former's sum must outlive the epoch.
TEST(Simulation, AnEpochMayEndBetweenTwoServersThatLearnTheNorm) {
  for (std::uint64_t seed = 1; seed <= 80; ++seed) {
    const WorldResult result = runWorld({.seed = seed * 7,
                                         .ps = 2 + static_cast<int>(seed % 2),
                                         .workers = 2,
                                         .deterministic = seed % 2 == 0,
                                         .clip_norm = kClip,
                                         .kills = 12,
                                         .kill_ps = false,
                                         .drop = 0.2});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    EXPECT_EQ(result.lost_steps, 0) << seed;
  }
}

TEST(Simulation, DeathsOfServersReturnAClippedJobToACheckpoint) {
  int kills = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    const WorldResult result = runWorld({.seed = seed * 499,
                                         .ps = 1 + static_cast<int>(seed % 3),
                                         .workers = 1 + static_cast<int>(seed % 3),
                                         .deterministic = seed % 2 == 0,
                                         .clip_norm = kClip,
                                         .kills = 5,
                                         .drop = seed % 3 == 0 ? 0.03 : 0.0,
                                         .duplicate = 0.05});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    kills += result.kills;
  }
  EXPECT_GT(kills, 250);
}

TEST(Simulation, AStopOfAClippedJobLeavesACheckpoint) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const WorldResult result = runWorld({.seed = seed * 83,
                                         .steps = 200,
                                         .clip_norm = kClip,
                                         .drop = seed % 4 == 0 ? 0.02 : 0.0,
                                         .stop_at = std::chrono::milliseconds(100 + 10 * seed)});
    EXPECT_EQ(result.outcome, "stopped") << seed;
    EXPECT_EQ(result.lost_steps, 0) << seed;
  }
}

// 17 samples over 2, 3 or 4 workers: their pieces differ in size, and the sums weigh by samples.
TEST(Simulation, AGlobalBatchIsDealtOutUnevenly) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const WorldResult result = runWorld({.seed = seed * 31,
                                         .workers = 2 + static_cast<int>(seed % 3),
                                         .global_batch = 17,
                                         .deterministic = seed % 2 == 0,
                                         .kills = seed % 3 == 0 ? 0 : 3,
                                         .duplicate = 0.05});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
  }
}

// Two passes end with a step that is short, or so short that some workers have no samples in it and
// are not waited for, whoever dies and whatever is lost.
TEST(Simulation, TheLastStepOfThePassesMayBeShort) {
  int kills = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const int workers = 2 + static_cast<int>(seed % 3);
    WorldConfig config{.seed = seed * 13,
                       .ps = 1 + static_cast<int>(seed % 2),
                       .workers = workers,
                       .passes = 2,
                       .samples = 30 + static_cast<std::int64_t>(seed % 20),
                       .batch = 3,
                       .global_batch = seed % 2 == 0 ? 7 : 0,
                       .evaluate_every = seed % 5 == 0 ? 1 : 4,
                       .deterministic = seed % 4 < 2,
                       .kills = seed % 3 == 0 ? 0 : 6,
                       .kill_ps = seed % 3 == 1,
                       .kill_within = std::chrono::milliseconds(400),
                       .drop = seed % 5 == 0 ? 0.05 : 0.0,
                       .duplicate = 0.05};
    const WorldResult result = runWorld(config);
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    const std::int64_t step_samples = config.global_batch > 0 ? 7 : 3 * workers;
    EXPECT_EQ(result.steps, (2 * config.samples + step_samples - 1) / step_samples) << seed;
    if (!config.kill_ps) {
      EXPECT_EQ(result.lost_steps, 0) << seed;
    }
    kills += result.kills;
  }
  EXPECT_GT(kills, 300);
}

// The last step has one sample, for the worker of rank 0; a stop comes around it.
TEST(Simulation, AStopDuringAShortLastStepIsCleanToo) {
  int stopped = 0;
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    const WorldResult result = runWorld({.seed = seed * 57,
                                         .passes = 1,
                                         .samples = 46,
                                         .global_batch = 9,
                                         .drop = seed % 3 == 0 ? 0.03 : 0.0,
                                         .stop_at = std::chrono::milliseconds(112 + seed)});
    EXPECT_EQ(result.lost_steps, 0) << seed;
    stopped += result.outcome == "stopped";
    EXPECT_TRUE(result.outcome == "stopped" || result.outcome == "succeeded") << seed;
  }
  EXPECT_GT(stopped, 20);
}

// Who is frozen past the deadline comes into a newer epoch with what it holds, and what it sent or
// is sent of the former one changes nothing.
TEST(Simulation, FrozenTasksLoseNothingWhenTheyWake) {
  int freezes = 0;
  std::int64_t epochs = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    const WorldResult result = runWorld({.seed = seed * 313,
                                         .ps = 1 + static_cast<int>(seed % 3),
                                         .workers = 1 + static_cast<int>(seed % 3),
                                         .deterministic = seed % 2 == 0,
                                         .freezes = 3,
                                         .drop = seed % 3 == 0 ? 0.03 : 0.0,
                                         .duplicate = 0.05});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    EXPECT_EQ(result.lost_steps, 0) << seed;
    freezes += result.freezes;
    epochs += result.epochs;
  }
  EXPECT_GT(freezes, 120);
  EXPECT_GT(epochs, 200) << "some slept longer than the deadline";
}

TEST(Simulation, FrozenAndKilledTasksTogether) {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    const WorldResult result = runWorld({.seed = seed * 5003,
                                         .ps = 1 + static_cast<int>(seed % 3),
                                         .workers = 1 + static_cast<int>(seed % 3),
                                         .kills = 2,
                                         .freezes = 3,
                                         .drop = seed % 3 == 0 ? 0.03 : 0.0,
                                         .duplicate = 0.05});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
  }
}

TEST(Simulation, AStopLeavesACheckpointOfTheStepReached) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const WorldResult result = runWorld({.seed = seed * 77,
                                         .steps = 200,
                                         .drop = seed % 4 == 0 ? 0.02 : 0.0,
                                         .stop_at = std::chrono::milliseconds(100 + 10 * seed)});
    EXPECT_EQ(result.outcome, "stopped") << seed;
    EXPECT_EQ(result.lost_steps, 0) << seed;
    EXPECT_GE(result.stopped_at, 0) << seed;
  }
}

// Workers come and go at random, and the optimisation is that of the job without: every weight on
// its way, every checkpoint, and the number of steps.
TEST(Simulation, ScalingWithAGlobalBatchChangesNothing) {
  int scalings = 0;
  int left = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const WorldResult result = runWorld({.seed = seed * 271,
                                         .ps = 1 + static_cast<int>(seed % 3),
                                         .workers = 1 + static_cast<int>(seed % 4),
                                         .steps = 60,
                                         .global_batch = 17,
                                         .deterministic = seed % 2 == 0,
                                         .clip_norm = seed % 5 == 0 ? kClip : 0,
                                         .drop = seed % 4 == 0 ? 0.03 : 0.0,
                                         .duplicate = 0.05,
                                         .scalings = 4});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    EXPECT_EQ(result.lost_steps, 0) << seed;
    EXPECT_EQ(result.steps, 60) << seed;
    scalings += result.scalings;
    left += result.left;
  }
  EXPECT_GT(scalings, 250);
  EXPECT_GT(left, 250);
}

// With a batch for each worker the steps of an epoch read as many samples as it has workers: every
// sample of the passes once, in an order that only the epochs decide.
TEST(Simulation, ScalingUsesEverySampleOnce) {
  int scalings = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const WorldResult result = runWorld({.seed = seed * 683,
                                         .ps = 1 + static_cast<int>(seed % 3),
                                         .workers = 1 + static_cast<int>(seed % 4),
                                         .passes = 2,
                                         .samples = 300 + static_cast<std::int64_t>(seed % 20),
                                         .batch = 3,
                                         .deterministic = seed % 2 == 0,
                                         .drop = seed % 4 == 0 ? 0.03 : 0.0,
                                         .duplicate = 0.05,
                                         .scalings = 4});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    EXPECT_EQ(result.lost_steps, 0) << seed;
    scalings += result.scalings;
  }
  EXPECT_GT(scalings, 250);
}

// An epoch that a death ends in the middle of a step may go on with other workers: what some
// servers have taken of the step is taken by the others too, from the same samples.
TEST(Simulation, ScalingAmidDeathsOfWorkersLosesNoStep) {
  int kills = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const WorldResult result = runWorld({.seed = seed * 911,
                                         .ps = 1 + static_cast<int>(seed % 3),
                                         .workers = 1 + static_cast<int>(seed % 4),
                                         .passes = 2,
                                         .samples = 300,
                                         .batch = 3,
                                         .global_batch = seed % 3 == 0 ? 11 : 0,
                                         .deterministic = seed % 2 == 0,
                                         .clip_norm = seed % 5 == 0 ? kClip : 0,
                                         .kills = 5,
                                         .kill_ps = false,
                                         .kill_within = std::chrono::milliseconds(600),
                                         .drop = seed % 4 == 0 ? 0.03 : 0.0,
                                         .duplicate = 0.05,
                                         .scalings = 4});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    EXPECT_EQ(result.lost_steps, 0) << seed;
    kills += result.kills;
  }
  EXPECT_GT(kills, 300);
}

TEST(Simulation, ScalingAmidDeathsOfAllKinds) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const WorldResult result = runWorld({.seed = seed * 1433,
                                         .ps = 1 + static_cast<int>(seed % 3),
                                         .workers = 1 + static_cast<int>(seed % 4),
                                         .passes = 2,
                                         .samples = 200,
                                         .batch = 3,
                                         .global_batch = seed % 3 == 0 ? 11 : 0,
                                         .kills = 4,
                                         .kill_within = std::chrono::milliseconds(900),
                                         .freezes = seed % 2 == 0 ? 2 : 0,
                                         .drop = seed % 4 == 0 ? 0.03 : 0.0,
                                         .duplicate = 0.05,
                                         .scalings = 4});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
  }
}

// The stop may come while some servers have taken a step and others have not.
TEST(Simulation, AStopAmidDeathsOfWorkersLosesNoStep) {
  int stopped = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    const WorldResult result = runWorld({.seed = seed * 59,
                                         .ps = 1 + static_cast<int>(seed % 3),
                                         .workers = 1 + static_cast<int>(seed % 3),
                                         .steps = 300,
                                         .kills = 4,
                                         .kill_ps = false,
                                         .kill_within = std::chrono::milliseconds(500),
                                         .drop = seed % 4 == 0 ? 0.02 : 0.0,
                                         .scalings = seed % 2 == 0 ? 4 : 0,
                                         .stop_at = std::chrono::milliseconds(150 + 3 * seed)});
    EXPECT_EQ(result.outcome, "stopped") << seed;
    stopped += result.lost_steps == 0;
  }
  EXPECT_GT(stopped, 120) << "most have their workers back before the limit";
}

TEST(Simulation, AStopWhileItScalesLeavesACheckpoint) {
  for (std::uint64_t seed = 1; seed <= 80; ++seed) {
    const WorldResult result = runWorld({.seed = seed * 47,
                                         .steps = 300,
                                         .drop = seed % 4 == 0 ? 0.02 : 0.0,
                                         .scalings = 5,
                                         .scale_within = std::chrono::milliseconds(300),
                                         .stop_at = std::chrono::milliseconds(100 + 3 * seed)});
    EXPECT_EQ(result.outcome, "stopped") << seed;
    EXPECT_EQ(result.lost_steps, 0) << seed;
  }
}

// The end moves while the job runs, also behind what is done already.
TEST(Simulation, TheNumberOfStepsChangesAmidDeathsOfAllKinds) {
  int changes = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const WorldResult result = runWorld({.seed = seed * 733,
                                         .ps = 1 + static_cast<int>(seed % 3),
                                         .workers = 1 + static_cast<int>(seed % 4),
                                         .steps = 60,
                                         .clip_norm = seed % 5 == 0 ? kClip : 0,
                                         .kills = seed % 3 == 0 ? 0 : 4,
                                         .kill_ps = seed % 3 == 1,
                                         .drop = seed % 4 == 0 ? 0.03 : 0.0,
                                         .duplicate = 0.05,
                                         .scalings = seed % 2 == 0 ? 2 : 0,
                                         .lengths = 3});
    EXPECT_EQ(result.outcome, "succeeded") << seed;
    if (seed % 3 != 1) {
      EXPECT_EQ(result.lost_steps, 0) << seed;
    }
    changes += result.lengths;
  }
  EXPECT_GT(changes, 300);
}

TEST(Simulation, NaNFailsTheJob) {
  const WorldResult result = runWorld({.seed = 5, .nan_at = 12});
  EXPECT_EQ(result.outcome, "failed");
}

}  // namespace
}  // namespace trainyard::sim
