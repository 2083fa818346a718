#pragma once

#include <gtest/gtest.h>

#include "tests/sim/world.h"

namespace trainyard::sim {

// Of random tasks, each when the job has got over the one before.
inline WorldConfig deathsOneByOne(std::uint64_t seed) {
  return {.seed = seed * 7919,
          .ps = 2 + static_cast<int>(seed % 3),
          .workers = 1 + static_cast<int>(seed % 3),
          .steps = 40,
          .deterministic = seed % 2 == 0,
          .kills = 4,
          .kill_workers = seed % 3 == 0,
          .one_by_one = true,
          .kill_within = std::chrono::milliseconds(400),
          .drop = seed % 4 == 0 ? 0.03 : 0.0,
          .duplicate = 0.05,
          .small_chunks = seed % 4 < 2};
}

// Every failing seed prints its configuration: running that seed again replays it exactly.
inline WorldResult runWorld(const WorldConfig& config) {
  WorldResult result = World(config).run();
  EXPECT_EQ(result.problem, "") << "seed " << config.seed << " ps " << config.ps << " workers "
                                << config.workers << " kills " << config.kills;
  return result;
}

}  // namespace trainyard::sim
