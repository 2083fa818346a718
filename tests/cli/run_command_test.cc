// `trainyard run` as a process, over stub agents: how it ends, what it says, and that nobody is
// left.
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/process/child_process.h"
#include "base/process/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/local/run_directory.h"
#include "tests/base/process/temp_dir.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;
using control::TaskKey;
using testing::HasSubstr;

constexpr TaskKey kPs0{v1::ROLE_PS, 0};
constexpr TaskKey kWorker0{v1::ROLE_WORKER, 0};

constexpr char kTrainedJob[] = R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: small}
spec:
  ps: {replicas: 1}
  worker: {replicas: 1}
  training:
    model: {name: mlp, hidden: [8]}
    data: {format: synthetic, shape: [4, 4, 1], classes: 3, samples: 64, evalSamples: 16}
    batchSize: 8
    steps: 10
    optimizer: {name: SGD, learningRate: 0.1}
)";

class RunCommandTest : public testing::Test {
 protected:
  RunCommandTest() {
    std::string name = testing::TempDir() + "run_command_XXXXXX";
    root_ = ::mkdtemp(name.data());
    std::ofstream(root_ / "job.yaml") << kTrainedJob;
    paths_.dir = root_ / "run";
  }
  ~RunCommandTest() override {
    launcher_.reset();
    fs::remove_all(root_);
  }

  void launch(std::vector<std::string> more = {}) {
    const std::string bin = std::getenv("TRAINYARD_BIN");
    SpawnOptions spawn;
    spawn.argv = {bin + "/trainyard",
                  "run",
                  "-f",
                  (root_ / "job.yaml").string(),
                  "--dir",
                  paths_.dir.string(),
                  "--agent",
                  bin + "/stub-agent",
                  "--runtime",
                  "/bin/false"};
    spawn.argv.insert(spawn.argv.end(), more.begin(), more.end());
    spawn.cwd = root_.string();
    spawn.output_file = (root_ / "output").string();
    auto child = ChildProcess::spawn(spawn);
    ASSERT_TRUE(child.ok()) << child.status();
    launcher_ = *std::move(child);
  }

  int pidOf(const TaskKey& key) {
    int pid = 0;
    EXPECT_TRUE(eventually([&] {
      const auto agent = control::readAgentFile(paths_.agent(key));
      if (agent.ok()) pid = agent->pid;
      return pid > 0;
    })) << output();
    return pid;
  }
  void command(const TaskKey& key, const std::string& text) {
    ASSERT_TRUE(writeFileAtomically(paths_.task(key) / "stub.command", text + "\n").ok());
  }
  int waitForEnd() {
    const auto exit = launcher_->wait(systemClock().now() + std::chrono::seconds(60));
    EXPECT_TRUE(exit.ok()) << exit.status() << output();
    return exit.ok() && exit->signal == 0 ? exit->code : -1;
  }
  std::string output() { return readFile(root_ / "output", 1 << 20).value_or(""); }
  std::string lastLine() {
    std::string text = output();
    if (!text.empty()) text.pop_back();
    return text.substr(text.rfind('\n') + 1);
  }
  static bool gone(int pid) { return pid > 0 && ::kill(pid, 0) != 0; }

  fs::path root_;
  control::RunPaths paths_;
  std::optional<ChildProcess> launcher_;
};

TEST_F(RunCommandTest, SucceedsWhenTheChiefDoesAndIsFinishedThen) {
  launch();
  const int ps = pidOf(kPs0);
  const int worker = pidOf(kWorker0);
  command(kWorker0, "exit 0");
  command(kPs0, "exit 0");
  EXPECT_EQ(waitForEnd(), 0) << output();
  EXPECT_THAT(lastLine(), testing::StartsWith("result: succeeded steps=10 "));
  EXPECT_THAT(lastLine(), HasSubstr(" dir=" + paths_.dir.string()));
  EXPECT_TRUE(gone(ps));
  EXPECT_TRUE(gone(worker));
  for (const auto& file : {paths_.result(), paths_.report(), paths_.environment(), paths_.events(),
                           paths_.jobYaml(), paths_.taskLog(kPs0)}) {
    EXPECT_TRUE(fs::exists(file)) << file;
  }
  const std::string first = lastLine();
  launch();
  EXPECT_EQ(waitForEnd(), 0);
  EXPECT_THAT(output(), HasSubstr("'small' has finished already"));
  EXPECT_EQ(lastLine(), first);
}

TEST_F(RunCommandTest, APermanentFailureIsCodeOneAndNamed) {
  launch();
  pidOf(kPs0);
  const int worker = pidOf(kWorker0);
  std::ofstream(paths_.taskLog(kWorker0), std::ios::app)
      << "2026-01-31T13:05:09.123Z E worker-0: data.images: no such file\n";
  command(kWorker0, "exit 3");
  EXPECT_EQ(waitForEnd(), 1) << output();
  EXPECT_THAT(lastLine(), testing::StartsWith("result: failed reason="));
  EXPECT_THAT(lastLine(), HasSubstr("data.images: no such file"));
  EXPECT_TRUE(gone(worker));
}

// The stub agents do not answer.
TEST_F(RunCommandTest, ASecondCtrlCEndsEverythingWithinFiveSeconds) {
  launch();
  const int ps = pidOf(kPs0);
  const int worker = pidOf(kWorker0);
  ASSERT_TRUE(eventually([&] { return fs::exists(paths_.membership()); })) << output();
  ASSERT_TRUE(launcher_->signal(SIGINT).ok());
  EXPECT_TRUE(eventually([&] { return output().find("60 s at most") != std::string::npos; }));
  const TimePoint before = systemClock().now();
  ASSERT_TRUE(launcher_->signal(SIGINT).ok());
  EXPECT_EQ(waitForEnd(), 130) << output();
  EXPECT_LT(systemClock().now() - before, std::chrono::seconds(5));
  EXPECT_THAT(lastLine(), testing::StartsWith("result: interrupted step="));
  EXPECT_TRUE(gone(ps));
  EXPECT_TRUE(gone(worker));
}

TEST_F(RunCommandTest, WhoDoesNotAnswerCtrlCIsWaitedForAsLongAsTheJobSays) {
  launch({"--set", "runPolicy.stopSeconds=1"});
  const int ps = pidOf(kPs0);
  const int worker = pidOf(kWorker0);
  ASSERT_TRUE(eventually([&] { return fs::exists(paths_.membership()); })) << output();
  ASSERT_TRUE(launcher_->signal(SIGINT).ok());
  EXPECT_EQ(waitForEnd(), 130) << output();
  EXPECT_THAT(readFile(paths_.events().string(), 1 << 20).value_or(""),
              HasSubstr("did not stop within 1 s"));
  EXPECT_THAT(lastLine(), testing::StartsWith("result: interrupted step="));
  EXPECT_TRUE(gone(ps));
  EXPECT_TRUE(gone(worker));
}

TEST_F(RunCommandTest, TheNextLaunchGoesOnWithNewLives) {
  launch();
  ASSERT_TRUE(eventually([&] { return fs::exists(paths_.membership()); })) << output();
  ASSERT_TRUE(launcher_->signal(SIGINT).ok());
  EXPECT_TRUE(eventually([&] { return output().find("Ctrl-C again") != std::string::npos; }));
  ASSERT_TRUE(launcher_->signal(SIGINT).ok());
  EXPECT_EQ(waitForEnd(), 130) << output();
  fs::remove(root_ / "output");
  launch();
  EXPECT_TRUE(eventually([&] {
    const auto agent = control::readAgentFile(paths_.agent(kWorker0));
    return agent.ok() && agent->created == 2;
  })) << output();
  const int worker = pidOf(kWorker0);
  EXPECT_THAT(output(), HasSubstr("again from step 0"));
  command(kWorker0, "exit 0");
  command(kPs0, "exit 0");
  EXPECT_EQ(waitForEnd(), 0) << output();
  EXPECT_TRUE(gone(worker));
}

TEST_F(RunCommandTest, AgentsEndWithAKilledLauncher) {
  launch();
  const int ps = pidOf(kPs0);
  const int worker = pidOf(kWorker0);
  ASSERT_TRUE(launcher_->signal(SIGKILL).ok());
  EXPECT_EQ(waitForEnd(), -1);
  EXPECT_TRUE(eventually([&] { return gone(ps) && gone(worker); }));
}

TEST_F(RunCommandTest, ALostTaskIsReplacedByAnotherLife) {
  launch();
  pidOf(kPs0);
  const int first = pidOf(kWorker0);
  ASSERT_GT(first, 0);
  ::kill(first, SIGKILL);
  int second = 0;
  EXPECT_TRUE(eventually([&] {
    const auto agent = control::readAgentFile(paths_.agent(kWorker0));
    second = agent.ok() ? agent->pid : 0;
    return second > 0 && second != first;
  })) << output();
  EXPECT_EQ(control::readAgentFile(paths_.agent(kWorker0))->created, 2u);
  command(kWorker0, "exit 0");
  command(kPs0, "exit 0");
  EXPECT_EQ(waitForEnd(), 0) << output();
  EXPECT_THAT(output(), HasSubstr("worker-0 is restarted"));
}

TEST_F(RunCommandTest, ASecondLauncherIsRefused) {
  launch();
  pidOf(kPs0);
  std::optional<ChildProcess> first = std::move(launcher_);
  launch();
  EXPECT_EQ(waitForEnd(), 2);
  EXPECT_THAT(output(), HasSubstr("another run uses the directory"));
}

TEST_F(RunCommandTest, JsonLeavesStandardOutputToTheResult) {
  launch({"--log-format", "json"});
  pidOf(kPs0);
  pidOf(kWorker0);
  command(kWorker0, "exit 0");
  command(kPs0, "exit 0");
  EXPECT_EQ(waitForEnd(), 0) << output();
  EXPECT_THAT(output(), HasSubstr("\"kind\":\"progress\""));
  EXPECT_THAT(lastLine(), testing::StartsWith("result: succeeded"));
}

}  // namespace
}  // namespace trainyard::cli
