// For tests of jobs whose tasks come and go: who stays is the same process, and the job goes on.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/multiproc/run_fixture.h"

namespace trainyard {

// The process and when it was started, in ticks since boot.
using Life = std::pair<pid_t, std::string>;

class ScalingTest : public RunTest {
 protected:
  // `trainyard scale` of the run with these flags.
  ProgramEnd scale(const JobRun& run, const std::vector<std::string>& flags);
  // Of the agents and of the programs of `tasks`.
  static std::map<std::string, Life> livesOf(const JobRun& run,
                                             const std::vector<std::string>& tasks);
  // What worker 0 recorded last; step -1: nothing yet.
  static PositionRecord newest(const JobRun& run);
  // Two more steps of worker 0.
  static Waited goesOn(const JobRun& run);
  static nlohmann::json statusOf(const JobRun& run) { return run.json("status.json").at("status"); }
  static void expectUndisturbed(const JobRun& run);
};

}  // namespace trainyard
