// Processes die and jobs are stopped in the modes in which workers do not wait for each other. The
// workers' gradients are constant (simulated computing), so the final weights tell how many updates
// each chunk has had, whoever made them.
#include <signal.h>

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "tests/multiproc/run_fixture.h"
#include "tests/multiproc/side_by_side.h"

namespace trainyard {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr int kUpdateModesFaultsWorkers = 3;
constexpr int kUpdateModesFaultsBatch = 4;
// Steps at which somebody dies or the job is stopped; slow ones begin at the first.
constexpr int kFirst = 20;
constexpr int kSecond = 40;
constexpr Duration kUpdateModesFaultsPatience = std::chrono::seconds(300);  // against hangs only

struct Mode {
  const char* name;
  const char* update;
  int steps;
  int pushes;  // of one step
  bool asks_for_samples() const { return pushes > 0; }
};

// Some seconds of training each, so that there is a checkpoint on the way.
const std::vector<Mode> kModes = {
    {"async", "{mode: Async}", 600, 1},
    {"aggregate", "{mode: Async, aggregate: 3}", 200, 3},
    {"bounded", "{mode: BoundedDelay, maxDelay: 4}", 600, 1},
    {"backup", "{mode: Sync, backupWorkers: 1}", 200, 0},
};

std::string jobOf(const std::string& update, int steps) {
  return fmt::format(R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: modes}}
spec:
  ps: {{replicas: 2}}
  worker: {{replicas: {}}}
  training:
    model: {{name: mlp, hidden: [8], simulatedStepSeconds: 0.02}}
    data: {{format: synthetic, shape: [8, 8, 1], classes: 4, samples: 100000, evalSamples: 100}}
    batchSize: {}
    steps: {}
    optimizer: {{name: SGD, learningRate: 0.01}}
    update: {}
    checkpoint: {{everySeconds: 1}}
)",
                     kUpdateModesFaultsWorkers, kUpdateModesFaultsBatch, steps, update);
}

class UpdateModesFaults : public RunTest {
 protected:
  // The digest after so many updates that nobody disturbed; how long they took does not matter to
  // weights whose gradients are constant.
  std::string digestAfter(int steps) {
    static std::map<int, std::string> digests;
    static std::mutex mutex;
    std::lock_guard lock(mutex);
    std::string& digest = digests[steps];
    if (digest.empty()) {
      JobRun run(folder(fmt::format("undisturbed-{}", steps)), jobOf("{mode: Sync}", steps),
                 {"--set", "training.model.simulatedStepSeconds=0.001"});
      EXPECT_EQ(run.launchAndWait().code, 0);
      digest = run.digest();
    }
    return digest;
  }
  // `test` of each mode, side by side.
  void inEachMode(const std::function<void(const Mode& mode)>& test) {
    sideBySide(kModes.size(), [&](std::size_t i) {
      SCOPED_TRACE(kModes[i].name);
      test(kModes[i]);
    });
  }
  // The job has had exactly its updates; of `deaths` workers a push each may be half done or
  // without a record.
  void checkEnd(const JobRun& run, const Mode& mode, const ProgramEnd& end, int deaths) {
    ASSERT_EQ(end.code, 0) << end.output;
    ASSERT_THAT(end.lastLine(), StartsWith(fmt::format("result: succeeded steps={} ", mode.steps)));
    EXPECT_EQ(run.checkpointSteps().back(), mode.steps);
    auto fields = fieldsOf(end.lastLine());
    const int partial = mode.asks_for_samples() ? std::stoi(fields.at("partial")) : 0;
    EXPECT_LE(partial, deaths);
    if (partial == 0) {
      EXPECT_EQ(run.digest(), digestAfter(mode.steps));
    }
    fmt::print("{}: {}\n", mode.name, end.lastLine());
    if (mode.asks_for_samples()) checkPushes(run, mode, deaths);
  }
  // Of the records of one push the newest counts (others were taken back).
  static void checkPushes(const JobRun& run, const Mode& mode, int deaths) {
    std::map<std::int64_t, std::int64_t> newest_epoch;
    std::vector<PositionRecord> all;
    for (int w = 0; w < kUpdateModesFaultsWorkers; ++w) {
      for (const PositionRecord& record : run.positions(fmt::format("worker-{}", w))) {
        all.push_back(record);
        std::int64_t& newest = newest_epoch[record.step];
        newest = std::max(newest, record.epoch);
      }
    }
    EXPECT_GE(newest_epoch.begin()->first, 0);
    EXPECT_LT(newest_epoch.rbegin()->first, mode.steps);
    if (mode.pushes > 1) return;  // a step's pushes may be of several epochs
    std::map<std::int64_t, int> uses;
    std::int64_t pushes = 0;
    for (const PositionRecord& record : all) {
      if (record.epoch < newest_epoch[record.step]) continue;
      ++pushes;
      for (std::int64_t i = 0; i < record.count; ++i) ++uses[record.first + i];
    }
    EXPECT_LE(pushes, mode.steps);
    EXPECT_GE(pushes, mode.steps - deaths);
    for (const auto& [position, count] : uses) ASSERT_EQ(count, 1) << "position " << position;
    // What was lent at the end and never pushed lies behind: a push for each worker in its hands.
    EXPECT_LE(uses.rbegin()->first,
              (mode.steps + 2 * kUpdateModesFaultsWorkers) * kUpdateModesFaultsBatch);
  }
};

TEST_F(UpdateModesFaults, AWorkerIsKilled) {
  inEachMode([&](const Mode& mode) {
    JobRun run(folder(mode.name), jobOf(mode.update, mode.steps));
    run.launch(run.slowSteps(kFirst));
    ASSERT_TRUE(run.reaches("worker-1", kFirst));
    ASSERT_NO_FATAL_FAILURE(killTask(run, "worker-1"));
    ASSERT_TRUE(eventually(
        [&] { return run.taskLog("ps-0").find("from what the servers hold") != std::string::npos; },
        kUpdateModesFaultsPatience));
    run.releaseSteps();
    const ProgramEnd end = run.wait(kUpdateModesFaultsPatience);
    checkEnd(run, mode, end, 1);
    EXPECT_THAT(run.taskLog("ps-0"), HasSubstr("from what the servers hold"));
    EXPECT_THAT(run.taskLog("ps-0"), testing::Not(HasSubstr("from checkpoint")));
  });
}

TEST_F(UpdateModesFaults, AParameterServerIsKilled) {
  inEachMode([&](const Mode& mode) {
    JobRun run(folder(mode.name), jobOf(mode.update, mode.steps));
    run.launch(run.slowSteps(kFirst));
    ASSERT_TRUE(run.hasCheckpoint());
    ASSERT_NO_FATAL_FAILURE(
        killTask(run, mode.pushes == 1 ? "ps-0" : "ps-1"));  // the coordinator's, too
    run.releaseSteps();
    const ProgramEnd end = run.wait(kUpdateModesFaultsPatience);
    checkEnd(run, mode, end, 0);
    // With backup workers steps are common to all, and a server has replicas.
    const bool replicated = mode.pushes == 0;
    EXPECT_THAT(run.taskLog("ps-0"),
                HasSubstr(replicated ? "from what the servers hold" : "from checkpoint"));
  });
}

// Then each push has been taken by two servers before its worker is told.
TEST_F(UpdateModesFaults, AParameterServerWhosePushesHaveReplicasIsKilled) {
  inEachMode([&](const Mode& mode) {
    if (!mode.asks_for_samples()) return;
    JobRun run(folder(mode.name), jobOf(mode.update, mode.steps),
               {"--set", "training.chunkReplicas=Always"});
    run.launch(run.slowSteps(kFirst));
    ASSERT_TRUE(run.reaches("worker-1", kFirst));
    ASSERT_NO_FATAL_FAILURE(killTask(run, "ps-1"));
    ASSERT_TRUE(run.reaches("worker-1", kSecond));
    ASSERT_NO_FATAL_FAILURE(killTask(run, "ps-0"));  // with the ledger of tickets and samples
    run.releaseSteps();
    const ProgramEnd end = run.wait(kUpdateModesFaultsPatience);
    checkEnd(run, mode, end, 0);
    EXPECT_THAT(run.taskLog("ps-0"), HasSubstr("from what the servers hold"));
    EXPECT_THAT(run.taskLog("ps-0"), testing::Not(HasSubstr("from checkpoint")));
  });
}

TEST_F(UpdateModesFaults, AnOnlyParameterServerWhosePushesHaveReplicasIsKilled) {
  inEachMode([&](const Mode& mode) {
    if (!mode.asks_for_samples()) return;
    JobRun run(folder(mode.name), jobOf(mode.update, mode.steps),
               {"--set", "training.chunkReplicas=Always", "--set", "ps.replicas=1"});
    run.launch(run.slowSteps(kFirst));
    for (const int step : {kFirst, kSecond}) {
      ASSERT_TRUE(run.reaches("worker-1", step));
      ASSERT_NO_FATAL_FAILURE(killTask(run, "ps-0"));
    }
    run.releaseSteps();
    const ProgramEnd end = run.wait(kUpdateModesFaultsPatience);
    checkEnd(run, mode, end, 0);
    EXPECT_THAT(run.taskLog("ps-0"), HasSubstr("from what the servers hold"));
    EXPECT_THAT(run.taskLog("ps-0"), testing::Not(HasSubstr("from checkpoint")));
  });
}

TEST_F(UpdateModesFaults, CtrlCLeavesACheckpointFromWhichTheJobGoesOn) {
  inEachMode([&](const Mode& mode) {
    JobRun run(folder(mode.name), jobOf(mode.update, mode.steps));
    run.launch(run.slowSteps(kFirst));
    ASSERT_TRUE(run.reaches("worker-0", kFirst));
    ASSERT_TRUE(run.launcher().signal(SIGINT).ok());
    const ProgramEnd stopped = run.wait(kUpdateModesFaultsPatience);
    EXPECT_EQ(stopped.code, 130);
    EXPECT_THAT(stopped.output, testing::Not(HasSubstr("without a new checkpoint")));
    const std::int64_t reached = run.checkpointSteps().back();
    EXPECT_GE(reached, kFirst);
    EXPECT_THAT(stopped.lastLine(),
                StartsWith(fmt::format("result: interrupted step={} ", reached)));
    EXPECT_TRUE(processesWith(run.dir().string()).empty());
    run.launch();
    const ProgramEnd end = run.wait(kUpdateModesFaultsPatience);
    EXPECT_THAT(end.output, HasSubstr(fmt::format("resuming 'modes' from step {} ", reached)));
    checkEnd(run, mode, end, 0);
  });
}

TEST_F(UpdateModesFaults, AsyncIsSuspendedAndResumed) {
  const Mode& mode = kModes.front();
  JobRun run(folder("job"), jobOf(mode.update, mode.steps));
  run.launch(run.slowSteps(kFirst));
  ASSERT_TRUE(run.reaches("worker-0", kFirst));
  const ProgramEnd suspend = program({"trainyard", "suspend", run.dir().string()});
  EXPECT_EQ(suspend.code, 0) << suspend.output;
  EXPECT_THAT(run.wait(kUpdateModesFaultsPatience).lastLine(),
              StartsWith("result: suspended step="));
  const std::int64_t reached = run.checkpointSteps().back();
  EXPECT_GE(reached, kFirst);
  const ProgramEnd resume = program({"trainyard", "resume", run.dir().string()});
  EXPECT_EQ(resume.code, 0) << resume.output;
  // It is not there while the job runs.
  ASSERT_TRUE(eventually(
      [&] {
        const auto result = run.json("result.json");
        return result.is_object() && result.value("result", "") == "succeeded";
      },
      kUpdateModesFaultsPatience));
  ASSERT_TRUE(eventually([&] { return processesWith(run.dir().string()).empty(); },
                         kUpdateModesFaultsPatience));
  EXPECT_EQ(run.digest(), digestAfter(mode.steps));
  checkPushes(run, mode, 0);
}

// Stopped with some of its gradient sent and the last chunk, with the loss, not.
TEST_F(UpdateModesFaults, AWorkerThatDiesInTheMiddleOfAPushIsCounted) {
  const Mode& mode = kModes.front();
  JobRun run(folder("job"), jobOf(mode.update, mode.steps));
  run.launch("worker.push=pause@60-1000,task=worker-1,life=1.1,times=1;" + run.slowSteps(60));
  ASSERT_GT(stoppedTask(run, "worker-1"), 0);
  ASSERT_NO_FATAL_FAILURE(killTask(run, "worker-1"));
  run.releaseSteps();
  const ProgramEnd end = run.wait(kUpdateModesFaultsPatience);
  checkEnd(run, mode, end, 1);
}

}  // namespace
}  // namespace trainyard
