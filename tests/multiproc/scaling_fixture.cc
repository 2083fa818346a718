#include "tests/multiproc/scaling_fixture.h"

#include <algorithm>
#include <sstream>

#include "base/process/files.h"
#include "fmt/format.h"

namespace trainyard {
namespace {

constexpr Duration kScalingFixtureLimit = std::chrono::seconds(120);

Life lifeOf(pid_t pid) {
  const std::string text = readFile(fmt::format("/proc/{}/stat", pid), 1 << 16).value_or("");
  std::stringstream rest(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::string word;
  for (int field = 3; field <= 22; ++field) rest >> word;
  return {pid, word};
}

}  // namespace

ProgramEnd ScalingTest::scale(const JobRun& run, const std::vector<std::string>& flags) {
  std::vector<std::string> argv = {"trainyard", "scale", run.dir().string()};
  argv.insert(argv.end(), flags.begin(), flags.end());
  return program(argv);
}

std::map<std::string, Life> ScalingTest::livesOf(const JobRun& run,
                                                 const std::vector<std::string>& tasks) {
  std::map<std::string, Life> lives;
  for (const std::string& task : tasks) {
    EXPECT_TRUE(eventually([&] { return run.runtimePid(task) > 0; }, kScalingFixtureLimit)) << task;
    lives[task + " agent"] = lifeOf(run.agentPid(task));
    lives[task] = lifeOf(run.runtimePid(task));
  }
  return lives;
}

PositionRecord ScalingTest::newest(const JobRun& run) {
  const std::vector<PositionRecord> records = run.positions("worker-0");
  PositionRecord none;
  none.step = -1;
  return records.empty() ? none : records.back();
}

Waited ScalingTest::goesOn(const JobRun& run) {
  const std::int64_t before = newest(run).step;
  return eventually([&] { return newest(run).step >= before + 2; }, kScalingFixtureLimit);
}

void ScalingTest::expectUndisturbed(const JobRun& run) {
  EXPECT_EQ(statusOf(run).value("lostSteps", 0), 0);
  EXPECT_EQ(statusOf(run).value("restarts", 0), 0);
  EXPECT_EQ(statusOf(run).value("disruptions", 0), 0);
}

}  // namespace trainyard
