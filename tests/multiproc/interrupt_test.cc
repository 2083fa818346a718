// Ctrl-C leaves a checkpoint of the step that was reached, and the same command goes on from it to
// the digest of the run that nobody disturbed.
#include <signal.h>

#include <string>
#include <vector>

#include "fmt/format.h"
#include "tests/multiproc/run_fixture.h"
#include "tests/multiproc/side_by_side.h"

namespace trainyard {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr int kInterruptSteps = 200;

TEST_F(RunTest, CtrlCLeavesACheckpointOfTheReachedStep) {
  JobRun run(folder("interrupt"), smallJob(2, 3, kInterruptSteps));
  run.launch(run.slowSteps(30));
  ASSERT_TRUE(run.reaches("worker-0", 30));
  const TimePoint before = systemClock().now();
  ASSERT_TRUE(run.launcher().signal(SIGINT).ok());
  const ProgramEnd end = run.wait();
  EXPECT_EQ(end.code, 130);
  EXPECT_LT(toSeconds(systemClock().now() - before), 10);
  EXPECT_TRUE(processesWith(run.dir().string()).empty());
  const std::int64_t reached = run.checkpointSteps().back();
  EXPECT_THAT(end.lastLine(), StartsWith(fmt::format("result: interrupted step={} ", reached)));
  for (const char* worker : {"worker-0", "worker-1", "worker-2"}) {
    EXPECT_EQ(run.positions(worker).back().step, reached - 1) << worker;
  }

  run.launch();
  const ProgramEnd second = run.wait();
  EXPECT_EQ(second.code, 0);
  EXPECT_THAT(second.lastLine(),
              StartsWith(fmt::format("result: succeeded steps={} ", kInterruptSteps)));
  EXPECT_THAT(run.output(), HasSubstr(fmt::format("resuming 'small' from step {} of {}", reached,
                                                  kInterruptSteps)));
  expectEachPositionOnce(run, 3, kInterruptSteps * 3 * 16);

  JobRun undisturbed(folder("undisturbed"), smallJob(2, 3, kInterruptSteps));
  EXPECT_EQ(undisturbed.launchAndWait().code, 0);
  EXPECT_EQ(run.digest(), undisturbed.digest());
}

// A step longer than anybody would guess.
TEST_F(RunTest, ALongStepIsWaitedFor) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> jobs = {
      {"servers", {}}, {"ring", {"--set", "strategy=AllReduce", "--set", "ps="}}};
  sideBySide(jobs.size(), [&](std::size_t i) {
    const auto& [name, flags] = jobs[i];
    JobRun run(folder(name), smallJob(1, 2, kInterruptSteps), flags);
    run.launch("worker.compute=delay(8000)@5");
    ASSERT_TRUE(run.reaches("worker-0", 4));
    ASSERT_TRUE(run.launcher().signal(SIGINT).ok());
    const ProgramEnd end = run.wait();
    EXPECT_EQ(end.code, 130);
    EXPECT_THAT(end.lastLine(), StartsWith("result: interrupted step=6 ")) << run.output();
    EXPECT_EQ(run.checkpointSteps().back(), 6);
  });
}

// Neither a step nor a write is waited for any longer than the job says.
TEST_F(RunTest, AStopThatTakesTooLongEndsWithoutACheckpoint) {
  const std::vector<std::pair<std::string, std::string>> jobs = {
      {"step", "worker.compute=delay(600000)@5"},
      {"write", "worker.compute=delay(300);ps.snapshot=delay(600000)@1-1000"}};
  sideBySide(jobs.size(), [&](std::size_t i) {
    const auto& [name, failpoints] = jobs[i];
    JobRun run(
        folder(name), smallJob(1, 2, kInterruptSteps),
        {"--set", "runPolicy.stopSeconds=3", "--set", "training.checkpoint.everySeconds=600"});
    run.launch(failpoints);
    ASSERT_TRUE(run.reaches("worker-0", 4));
    ASSERT_TRUE(eventually([&] { return run.newestCheckpoint() == 0; }));
    ASSERT_TRUE(run.launcher().signal(SIGINT).ok());
    const ProgramEnd end = run.wait();
    EXPECT_EQ(end.code, 130);
    EXPECT_THAT(end.lastLine(), StartsWith("result: interrupted step=0 ")) << run.output();
    EXPECT_THAT(run.taskLog("ps-0"), HasSubstr("stopped without a new checkpoint"));
    EXPECT_TRUE(processesWith(run.dir().string()).empty());
  });
}

}  // namespace
}  // namespace trainyard
