#pragma once

#include <gtest/gtest.h>

#include "tests/sim/world.h"

namespace trainyard::sim {

// Every failing seed prints its configuration: running that seed again replays it exactly.
inline WorldResult runWorld(const WorldConfig& config) {
  WorldResult result = World(config).run();
  EXPECT_EQ(result.problem, "") << "seed " << config.seed << " ps " << config.ps << " workers "
                                << config.workers << " kills " << config.kills;
  return result;
}

}  // namespace trainyard::sim
