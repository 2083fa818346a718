// Strategy AllReduce in whole runs: the weights are those of parameter servers to the last bit,
// over shared memory and over TCP; ranks that die or stop cost nothing, the coordinator's the steps
// since the last checkpoint; a run may go on with the other strategy.
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "tests/multiproc/run_fixture.h"

namespace trainyard {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

constexpr int kRingSteps = 120;
const std::vector<std::string> kRing = {"--set", "strategy=AllReduce", "--set", "ps="};

std::vector<std::string> ringWith(std::vector<std::string> more) {
  std::vector<std::string> flags = kRing;
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

// Ranks that do not have one address share no memory.
std::vector<std::string> overTcp(int workers) {
  std::vector<std::string> flags = kRing;
  for (int i = 0; i < workers; ++i) {
    flags.insert(flags.end(), {"--task-address", fmt::format("worker-{}=127.0.0.{}", i, i + 1)});
  }
  return flags;
}

class RingTest : public RunTest {
 protected:
  static std::string digestOfServers(int workers) {
    return undisturbedDigest(smallJob(1, workers, kRingSteps));
  }
  void expectSameEnd(const JobRun& run, const ProgramEnd& end, int workers) {
    EXPECT_EQ(end.code, 0);
    EXPECT_THAT(end.lastLine(), StartsWith(fmt::format("result: succeeded steps={} ", kRingSteps)));
    expectEachPositionOnce(run, workers, kRingSteps * workers * 16);
    EXPECT_EQ(run.digest(), digestOfServers(workers));
    if (HasFailure()) run.printLogs();
  }
};

class RingSizes : public RingTest, public testing::WithParamInterface<int> {};

TEST_P(RingSizes, EndsWithTheWeightsOfParameterServers) {
  const int workers = GetParam();
  const std::string yaml = smallJob(1, workers, kRingSteps);
  JobRun shared(folder("shared"), yaml, kRing);
  expectSameEnd(shared, shared.launchAndWait(), workers);
  JobRun tcp(folder("tcp"), yaml, overTcp(workers));
  expectSameEnd(tcp, tcp.launchAndWait("worker.push=delay(5)@20-40,task=worker-1"), workers);
}
INSTANTIATE_TEST_SUITE_P(, RingSizes, testing::Values(1, 3, 4));

// Hits are counted of all ranks' samples: a step has the same with the same weights, however many
// servers or ranks there are.
TEST_F(RingTest, TrainingAccuracyIsThatOfParameterServers) {
  const auto accuracies = [&](const char* name, int workers, std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--set", "training.model.dropout=0", "--set",
                               fmt::format("training.batchSize={}", 48 / workers)});
    JobRun run(folder(name), smallJob(2, workers, 20), flags);
    EXPECT_EQ(run.launchAndWait().code, 0);
    std::map<std::int64_t, double> found;
    std::ifstream in(run.dir() / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) {
      const auto json = nlohmann::json::parse(line);
      if (json.contains("loss")) found[json.at("step")] = json.at("training_accuracy");
    }
    return found;
  };
  const auto servers = accuracies("servers", 3, {});
  EXPECT_THAT(servers, SizeIs(5));
  EXPECT_EQ(servers, accuracies("ring", 3, kRing));
  const double first = servers.at(1);
  EXPECT_EQ(first, accuracies("one", 1, {}).at(1)) << "the first step's weights are the same";
  EXPECT_EQ(first * 48, std::round(first * 48));
  const auto differs = [&](const auto& at) { return at.second != first; };
  EXPECT_TRUE(std::ranges::any_of(servers, differs)) << "it is each step's own";
}

// Encrypted, between machines and on one, and with a rank that dies on the way.
TEST_F(RingTest, EncryptedItEndsWithTheSameWeights) {
  const std::string yaml = smallJob(1, 3, kRingSteps);
  const std::vector<std::string> encrypted = {"--set", "network.encryption=TLS"};
  std::vector<std::string> flags = overTcp(3);
  flags.insert(flags.end(), encrypted.begin(), encrypted.end());
  JobRun tcp(folder("tcp"), yaml, flags);
  expectSameEnd(tcp, tcp.launchAndWait("worker.compute=crash@60,task=worker-1,life=1.1"), 3);
  EXPECT_EQ(tcp.json("status.json")["status"].value("lostSteps", 0), 0);
  JobRun shared(folder("shared"), yaml, ringWith(encrypted));
  expectSameEnd(shared, shared.launchAndWait(), 3);
}

// 3000 samples of 3 ranks and 32 each: the last of a pass has one rank without samples.
TEST_F(RingTest, APassMayEndUnevenly) {
  const std::vector<std::string> sets = {
      "--set", "training.steps=", "--set", "training.passes=1", "--set", "training.batchSize=37"};
  JobRun servers(folder("servers"), smallJob(2, 3, 1), sets);
  EXPECT_EQ(servers.launchAndWait().code, 0);
  JobRun ring(folder("ring"), smallJob(2, 3, 1), ringWith(sets));
  EXPECT_EQ(ring.launchAndWait().code, 0);
  expectEachPositionOnce(ring, 3, 3000);
  EXPECT_EQ(ring.digest(), servers.digest());
}

TEST_F(RingTest, ClipsAsParameterServersDo) {
  const std::vector<std::string> sets = {"--set", "training.optimizer.clipNorm=0.05"};
  JobRun servers(folder("servers"), smallJob(2, 3, 60), sets);
  EXPECT_EQ(servers.launchAndWait().code, 0);
  JobRun ring(folder("ring"), smallJob(2, 3, 60), ringWith(sets));
  EXPECT_EQ(ring.launchAndWait().code, 0);
  EXPECT_EQ(ring.digest(), servers.digest());
}

// The others hear of it at once, and go on from what they hold.
TEST_F(RingTest, AKilledWorkerCostsNoStep) {
  constexpr Duration kNoticed = std::chrono::seconds(10);
  JobRun run(folder("killed"), smallJob(1, 3, kRingSteps), kRing);
  // Killed within a step: between a step's end and the line that tells of it, the line would be
  // lost and the step would not.
  run.launch(
      "worker.compute=delay(600000)@21,task=worker-2,life=1.1;"
      "worker.compute=crash@90,task=worker-1,life=1.1");
  ASSERT_TRUE(run.reaches("worker-2", 20));
  ASSERT_NO_FATAL_FAILURE(killTask(run, "worker-2"));
  const auto named = [&](const std::string& task) {
    return run.taskLog(task).find("(rank 2 is worker-2)") != std::string::npos;
  };
  EXPECT_TRUE(eventually([&] { return named("worker-0") && named("worker-1"); }, kNoticed));
  const ProgramEnd end = run.wait();
  expectSameEnd(run, end, 3);
  EXPECT_EQ(run.json("status.json")["status"].value("lostSteps", 0), 0);
  EXPECT_THAT(run.taskLog("worker-0"), HasSubstr("is worker-2)"));
  EXPECT_THAT(run.taskLog("worker-0"), HasSubstr("from what the workers hold"));
  EXPECT_THAT(run.taskLog("worker-0"), Not(HasSubstr("from checkpoint")));
}

// The others tell the one that starts again where the job is.
TEST_F(RingTest, AKilledCoordinatorCostsNoStep) {
  JobRun run(folder("killed"), smallJob(1, 3, kRingSteps), kRing);
  const ProgramEnd end = run.launchAndWait("worker.compute=crash@60,task=worker-0,life=1.1");
  expectSameEnd(run, end, 3);
  EXPECT_EQ(run.json("status.json")["status"].value("lostSteps", 0), 0);
  EXPECT_THAT(run.taskLog("worker-0"), HasSubstr("from what the workers hold"));
  EXPECT_THAT(run.taskLog("worker-0"), Not(HasSubstr("from checkpoint")));
}

// Rounded once on each side of the sum: the same bits every time, and others than those of 32 bits.
TEST_F(RingTest, SixteenBitsOnTheWireAreRounded) {
  const auto digestWith = [&](const std::string& name, const std::string& type) {
    JobRun run(folder(name), smallJob(1, 3, kRingSteps),
               ringWith({"--set", "training.allReduce.wireType=" + type, "--set",
                         "training.allReduce.bucketBytes=4096"}));
    const ProgramEnd end = run.launchAndWait();
    EXPECT_EQ(end.code, 0) << end.output;
    expectEachPositionOnce(run, 3, kRingSteps * 3 * 16);
    return run.digest();
  };
  const std::string half = digestWith("half", "BFloat16");
  EXPECT_EQ(digestWith("again", "BFloat16"), half);
  EXPECT_NE(digestWith("float16", "Float16"), half);
  EXPECT_NE(half, digestOfServers(3));
  EXPECT_EQ(digestWith("full", "Float32"), digestOfServers(3)) << "buckets change no bit";
}

// The sizes of buckets are tried in the first steps, once: who comes later learns what was chosen.
// No bit depends on it.
TEST_F(RingTest, TheSizeOfBucketsIsFoundByTrying) {
  std::string yaml = smallJob(1, 3, kRingSteps);
  const std::string small = "hidden: [32]";
  yaml.replace(yaml.find(small), small.size(), "hidden: [512, 1024]");
  JobRun servers(folder("servers"), yaml);
  EXPECT_EQ(servers.launchAndWait().code, 0);
  JobRun run(folder("tried"), yaml, overTcp(3));
  const ProgramEnd end = run.launchAndWait("worker.compute=crash@80,task=worker-1,life=1.1");
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_EQ(run.digest(), servers.digest());
  const std::string log = run.taskLog("worker-0");
  const std::string line = " are the fastest: steps took ";
  const std::size_t first = log.find(line);
  ASSERT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find(line, first + 1), std::string::npos) << log;
  EXPECT_THAT(log, HasSubstr("from what the workers hold"));
  for (const char* size : {" ms with 1 MiB, ", " ms with 4 MiB"})
    EXPECT_THAT(log.substr(first), HasSubstr(size));
  for (const char* other : {"worker-1", "worker-2"})
    EXPECT_THAT(run.taskLog(other), Not(HasSubstr(line)));
}

// A rank that is stopped is missed by the coordinator, and waited for.
TEST_F(RingTest, AStoppedWorkerIsNamedAndGoesOn) {
  JobRun run(folder("stopped"), smallJob(1, 3, kRingSteps), kRing);
  run.launch("worker.compute=pause@20,task=worker-1,life=1.1,times=1");
  ASSERT_GT(stoppedTask(run, "worker-1"), 0);
  EXPECT_TRUE(eventually(
      [&] {
        return run.taskLog("worker-0").find("worker-1 has not been heard of") != std::string::npos;
      },
      std::chrono::seconds(60)));
  ASSERT_NO_FATAL_FAILURE(killTask(run, "worker-1", SIGCONT));
  expectSameEnd(run, run.wait(), 3);
}

TEST_F(RingTest, CtrlCLeavesACheckpointOfTheReachedStep) {
  JobRun run(folder("interrupt"), smallJob(1, 3, kRingSteps), kRing);
  run.launch(run.slowSteps(30));
  ASSERT_TRUE(run.reaches("worker-0", 30));
  ASSERT_TRUE(run.launcher().signal(SIGINT).ok());
  const ProgramEnd end = run.wait();
  EXPECT_EQ(end.code, 130);
  const std::int64_t reached = run.checkpointSteps().back();
  EXPECT_GE(reached, 30);
  EXPECT_THAT(end.lastLine(), StartsWith(fmt::format("result: interrupted step={} ", reached)));
  EXPECT_TRUE(processesWith(run.dir().string()).empty());
  expectSameEnd(run, run.launchAndWait(), 3);
}

TEST_F(RingTest, ARunMayGoOnWithTheOtherStrategy) {
  const std::filesystem::path dir = folder("run");
  const auto launch = [&](int ps, int steps, const std::vector<std::string>& flags) {
    JobRun run(dir, smallJob(ps, 3, steps), flags);
    EXPECT_EQ(run.launchAndWait().code, 0) << run.output();
    return run.digest();
  };
  launch(2, kRingSteps / 3, {});
  launch(1, kRingSteps * 2 / 3, kRing);
  EXPECT_EQ(launch(3, kRingSteps, {}), digestOfServers(3));
}

TEST_F(RingTest, ALossThatIsNotFiniteFailsTheJob) {
  JobRun run(folder("nan"), smallJob(1, 3, kRingSteps), kRing);
  const ProgramEnd end = run.launchAndWait("worker.gradient=nan@30,task=worker-1");
  EXPECT_NE(end.code, 0);
  EXPECT_THAT(end.output, HasSubstr("worker-1: step 30"));
  // That of step 0 may not have been written yet.
  for (const std::int64_t step : run.checkpointSteps()) EXPECT_LE(step, 30);
}

}  // namespace
}  // namespace trainyard
