// Processes of a deterministic job are killed, stopped or poisoned: it goes on, and ends with the
// digest of the run that nobody disturbed.
#include <signal.h>

#include <algorithm>

#include "fmt/format.h"
#include "tests/multiproc/run_fixture.h"

namespace trainyard {
namespace {

using testing::Contains;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::StartsWith;

constexpr int kSteps = 200;
// A step lasts long enough for a checkpoint (one each second) to come in the middle of the job.
constexpr char kSlow[] = "worker.compute=delay(20)@0-170";

class KillTest : public RunTest {
 protected:
  // The digest of the undisturbed job, from a run of its own, once for all tests.
  static std::string undisturbed() {
    static const std::string digest = [] {
      TempDir dir;
      JobRun run(dir.path(), smallJob(2, 3, kSteps));
      EXPECT_EQ(run.launchAndWait().code, 0);
      return run.digest();
    }();
    return digest;
  }
  static std::vector<std::string> flags() {
    return {"--set", "training.checkpoint.everySeconds=1"};
  }

  // A run that has a checkpoint behind its first step.
  void launchToCheckpoint(JobRun& run) {
    run.launch(kSlow);
    ASSERT_TRUE(eventually([&] { return lastCheckpoint(run) > 0; }, std::chrono::seconds(60)));
    ASSERT_TRUE(run.reaches("worker-0", lastCheckpoint(run) + 5));
  }
  static std::int64_t lastCheckpoint(const JobRun& run) {
    const std::vector<std::int64_t> steps = run.checkpointSteps();
    return steps.empty() ? -1 : steps.back();
  }
  void expectSuccess(JobRun& run, bool all_recorded = true) {
    const ProgramEnd end = run.wait();
    ASSERT_EQ(end.code, 0);
    EXPECT_THAT(end.lastLine(), StartsWith(fmt::format("result: succeeded steps={} ", kSteps)));
    EXPECT_EQ(run.digest(), undisturbed());
    if (all_recorded) expectEachPositionOnce(run, 3, kSteps * 3 * 16);
  }
  // Steps that a worker began with in its second and later epochs.
  static std::vector<std::int64_t> laterStarts(const JobRun& run, const char* worker = "worker-0") {
    std::vector<std::int64_t> starts;
    std::int64_t epoch = -1;
    for (const PositionRecord& record : run.positions(worker)) {
      if (epoch >= 0 && record.epoch > epoch) starts.push_back(record.step);
      epoch = record.epoch;
    }
    return starts;
  }
  static std::int64_t lostSteps(const JobRun& run) {
    return run.json("status.json").at("status").value("lostSteps", std::int64_t{0});
  }
};

TEST_F(KillTest, AWorkerInMidStepLosesNothing) {
  JobRun run(folder("worker"), smallJob(2, 3, kSteps));
  // Most of step 60's gradient is with the servers, the rest is still here.
  run.launch("worker.push=pause(2000)@60,task=worker-1");
  ASSERT_TRUE(run.reaches("worker-0", 59));
  ASSERT_TRUE(run.reaches("worker-1", 59));
  const pid_t killed = run.runtimePid("worker-1");
  ASSERT_EQ(::kill(killed, SIGKILL), 0);
  ASSERT_TRUE(eventually([&] {
    const pid_t now = run.runtimePid("worker-1");
    return now > 0 && now != killed;
  }));
  expectSuccess(run);
  EXPECT_EQ(lostSteps(run), 0);
  EXPECT_EQ(run.json("status.json").at("status").value("restarts", 0), 1);
  // The killed worker's batch is repeated; the others waited with theirs.
  EXPECT_EQ(laterStarts(run, "worker-1"), (std::vector<std::int64_t>{60}));
  for (const char* worker : {"worker-0", "worker-1", "worker-2"}) {
    EXPECT_EQ(run.positions(worker).size(), static_cast<std::size_t>(kSteps)) << worker;
  }
  EXPECT_THAT(run.taskLog("worker-1"), HasSubstr("agent: start 2: process"));
}

TEST_F(KillTest, AServerGoesBackToACheckpoint) {
  JobRun run(folder("ps"), smallJob(2, 3, kSteps), flags());
  ASSERT_NO_FATAL_FAILURE(launchToCheckpoint(run));
  std::vector<std::int64_t> committed = run.checkpointSteps();
  ASSERT_EQ(::kill(run.runtimePid("ps-1"), SIGKILL), 0);
  expectSuccess(run);
  const std::vector<std::int64_t> starts = laterStarts(run);
  ASSERT_EQ(starts.size(), 1u);
  // Or one that was committed between the look and the kill.
  EXPECT_GE(starts[0], committed.back());
  EXPECT_LT(starts[0], kSteps);
  EXPECT_THAT(run.taskLog("ps-0"), HasSubstr(fmt::format("starts at step {} ", starts[0])));
  EXPECT_GT(lostSteps(run), 0);
}

TEST_F(KillTest, TheCoordinatorsServerGoesBackToACheckpoint) {
  JobRun run(folder("ps"), smallJob(2, 3, kSteps), flags());
  ASSERT_NO_FATAL_FAILURE(launchToCheckpoint(run));
  const std::int64_t committed = lastCheckpoint(run);
  ASSERT_EQ(::kill(run.runtimePid("ps-0"), SIGKILL), 0);
  expectSuccess(run);
  const std::vector<std::int64_t> starts = laterStarts(run);
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_GE(starts[0], committed);
}

TEST_F(KillTest, TheChildOfAKilledAgentDiesAndTheJobRecovers) {
  JobRun run(folder("agent"), smallJob(2, 3, kSteps), flags());
  ASSERT_NO_FATAL_FAILURE(launchToCheckpoint(run));
  const pid_t child = run.runtimePid("worker-2");
  const pid_t agent = run.agentPid("worker-2");
  ASSERT_EQ(::kill(agent, SIGKILL), 0);
  EXPECT_TRUE(eventually([&] { return commandOf(child).empty(); }));
  // The worker may have died between the end of a step and its line in positions.jsonl.
  expectSuccess(run, /*all_recorded=*/false);
  EXPECT_NE(run.agentPid("worker-2"), agent);
  EXPECT_EQ(run.agent("worker-2").value("created", 0), 2) << "another life of the task";
  EXPECT_EQ(lostSteps(run), 0);
}

TEST_F(KillTest, TheSameCommandResumesAfterEverythingWasKilled) {
  JobRun run(folder("all"), smallJob(2, 3, kSteps), flags());
  ASSERT_NO_FATAL_FAILURE(launchToCheckpoint(run));
  ASSERT_TRUE(run.launcher().signal(SIGKILL).ok());
  for (const pid_t pid : processesWith(run.dir().string())) ::kill(pid, SIGKILL);
  EXPECT_EQ(run.wait().code, -1);
  ASSERT_TRUE(eventually([&] { return processesWith(run.dir().string()).empty(); }));
  const std::int64_t committed = lastCheckpoint(run);
  run.launch();
  expectSuccess(run);
  EXPECT_THAT(run.output(),
              HasSubstr(fmt::format("resuming 'small' from step {} of {}", committed, kSteps)));
  EXPECT_THAT(laterStarts(run), Contains(committed));
}

TEST_F(KillTest, CtrlCLeavesACheckpointOfTheReachedStep) {
  JobRun run(folder("interrupt"), smallJob(2, 3, kSteps));
  run.launch(kSlow);
  ASSERT_TRUE(run.reaches("worker-0", 30));
  const TimePoint before = systemClock().now();
  ASSERT_TRUE(run.launcher().signal(SIGINT).ok());
  const ProgramEnd end = run.wait();
  EXPECT_EQ(end.code, 130);
  EXPECT_LT(toSeconds(systemClock().now() - before), 10);
  EXPECT_TRUE(processesWith(run.dir().string()).empty());
  const std::int64_t reached = lastCheckpoint(run);
  EXPECT_THAT(end.lastLine(), StartsWith(fmt::format("result: interrupted step={} ", reached)));
  for (const char* worker : {"worker-0", "worker-1", "worker-2"}) {
    EXPECT_EQ(run.positions(worker).back().step, reached - 1) << worker;
  }
  run.launch();
  expectSuccess(run);
  EXPECT_THAT(run.output(),
              HasSubstr(fmt::format("resuming 'small' from step {} of {}", reached, kSteps)));
  EXPECT_EQ(laterStarts(run), (std::vector<std::int64_t>{reached}));
}

TEST_F(KillTest, AGradientThatIsNotFiniteEndsTheJobWithItsName) {
  JobRun run(folder("nan"), smallJob(2, 3, kSteps), flags());
  const ProgramEnd end =
      run.launchAndWait(fmt::format("{};worker.gradient=nan@165,task=worker-1", kSlow));
  EXPECT_EQ(end.code, 1);
  EXPECT_THAT(end.lastLine(), StartsWith("result: failed reason="));
  EXPECT_THAT(end.lastLine(), HasSubstr("worker-1: step 165"));
  EXPECT_THAT(end.lastLine(), ContainsRegex("variable (hidden1|output)_(wei|bia)"));
  EXPECT_TRUE(processesWith(run.dir().string()).empty());
  // What is on the disk is good: without the poison the job goes on from it.
  const std::int64_t committed = lastCheckpoint(run);
  EXPECT_GT(committed, 0);
  EXPECT_LE(committed, 165);
  run.launch();
  expectSuccess(run);
  EXPECT_THAT(run.output(),
              HasSubstr(fmt::format("resuming 'small' from step {} of {}", committed, kSteps)));
}

}  // namespace
}  // namespace trainyard
