// Workers join and leave a job of real processes that trains: those that stay are not started
// again, every sample is used once, and the weights are bit for bit those of a job that was stopped
// and started again with so many workers at the same steps.
#include <signal.h>

#include <array>
#include <fstream>
#include <iostream>
#include <set>

#include "base/process/files.h"
#include "fmt/format.h"
#include "runtime/data/sample_stream.h"
#include "tests/multiproc/scaling_fixture.h"

namespace trainyard {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr int kSamples = 3000;  // of smallJob's data
constexpr Duration kScaleLimit = std::chrono::seconds(120);
const std::vector<std::string> kScaleRing = {"--set", "strategy=AllReduce", "--set", "ps="};

class ScaleTest : public ScalingTest {
 protected:
  ProgramEnd scale(const JobRun& run, int workers, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"--workers", fmt::format("{}", workers)});
    return ScalingTest::scale(run, more);
  }
  // What the newest checkpoint says of its epochs.
  static nlohmann::json epochsOf(const JobRun& run) {
    nlohmann::json newest;
    std::pair<std::int64_t, std::int64_t> order{-1, -1};
    for (const auto& entry : std::filesystem::directory_iterator(run.dir() / "checkpoints")) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with("step-") || !name.ends_with(".json")) continue;
      const nlohmann::json manifest = run.json("checkpoints/" + name);
      const std::pair<std::int64_t, std::int64_t> at{manifest.value("step", 0),
                                                     manifest.value("epoch", 0)};
      if (at > order) order = at, newest = manifest.at("epochs");
    }
    return newest;
  }
  // Every sample of each whole pass, once.
  static void expectWholePasses(const JobRun& run, int workers, std::int64_t end) {
    expectEachPositionOnce(run, workers, end);
    runtime::SampleStream stream(/*seed=*/3, kSamples);
    std::map<std::int64_t, std::set<std::int64_t>> used;  // by pass
    for (const auto& [position, count] : usesOfPositions(run, workers)) {
      std::int64_t sample = -1;
      stream.lookUp(position, {&sample, 1});
      EXPECT_TRUE(used[position / kSamples].insert(sample).second) << "position " << position;
    }
    for (std::int64_t pass = 0; pass < end / kSamples; ++pass) {
      EXPECT_EQ(static_cast<int>(used[pass].size()), kSamples) << "pass " << pass;
    }
  }
};

// With parameter servers, which come and go as well (2 -> 3 -> 1), and with strategy AllReduce.
class ScaleStrategies : public ScaleTest, public testing::WithParamInterface<bool> {
 protected:
  void changeServers(const JobRun& run, bool ring, int workers, int servers) {
    if (ring) return;
    const ProgramEnd end = scale(run, workers, {"--ps", std::to_string(servers)});
    ASSERT_EQ(end.code, 0) << end.output;
    ASSERT_TRUE(goesOn(run));
  }
};

TEST_P(ScaleStrategies, TwoFourOneThree) {
  constexpr int kSteps = 700;
  const bool ring = GetParam();
  // As many chunks as it takes that three servers have some.
  std::vector<std::string> flags = {"--set", "training.model.hidden=[512,256]"};
  if (ring) flags.insert(flags.end(), kScaleRing.begin(), kScaleRing.end());
  JobRun run(folder("job"), smallJob(2, 2, kSteps), flags);
  run.launch(run.slowSteps());
  ASSERT_TRUE(run.reaches("worker-0", 3));
  std::vector<std::string> stayers = {"worker-0"};
  if (!ring) stayers.emplace_back("ps-0");
  const auto lives = livesOf(run, stayers);
  const auto second = livesOf(run, {"worker-1"});

  const TimePoint asked = systemClock().now();
  ASSERT_EQ(scale(run, 4, {"--no-wait"}).code, 0);
  ASSERT_TRUE(eventually([&] { return !run.positions("worker-2").empty(); }, kScaleLimit));
  std::cout << fmt::format("first step of a new worker {:.2f} s after the number was changed\n",
                           toSeconds(systemClock().now() - asked));
  ProgramEnd end = scale(run, 4);
  ASSERT_EQ(end.code, 0) << end.output;
  ASSERT_TRUE(goesOn(run));
  EXPECT_EQ(livesOf(run, stayers), lives);
  EXPECT_EQ(livesOf(run, {"worker-1"}), second);
  EXPECT_EQ(statusOf(run).at("worker").value("indices", ""), "0-3");
  ASSERT_NO_FATAL_FAILURE(changeServers(run, ring, 4, 3));

  end = scale(run, 1);
  ASSERT_EQ(end.code, 0) << end.output;
  EXPECT_THAT(end.lastLine(), StartsWith("run: workers 4 -> 1, step "));
  ASSERT_TRUE(goesOn(run));
  EXPECT_EQ(livesOf(run, stayers), lives);
  EXPECT_EQ(statusOf(run).at("worker").value("indices", ""), "0");
  for (const char* left : {"worker-1", "worker-2", "worker-3"}) {
    EXPECT_THAT(run.taskLog(left), HasSubstr("left on request"));
    EXPECT_THAT(run.taskLog(left), Not(HasSubstr("start 2")));
    EXPECT_EQ(run.agent(left).value("lastExitCode", -1), 0) << left;
  }

  ASSERT_NO_FATAL_FAILURE(changeServers(run, ring, 1, 1));

  end = scale(run, 3);
  ASSERT_EQ(end.code, 0) << end.output;
  ASSERT_TRUE(goesOn(run));
  EXPECT_EQ(livesOf(run, stayers), lives);
  end = run.releaseAndWait();
  ASSERT_EQ(end.code, 0) << end.output;
  EXPECT_THAT(end.lastLine(), StartsWith(fmt::format("result: succeeded steps={} ", kSteps)));
  expectUndisturbed(run);

  const nlohmann::json epochs = epochsOf(run);
  std::vector<int> ranks;
  for (const auto& epoch : epochs) ranks.push_back(epoch.value("ranks", 0));
  ASSERT_EQ(ranks, (std::vector<int>{2, 4, 1, 3})) << epochs.dump();
  const std::int64_t last = epochs.back().value("firstStep", 0);
  expectWholePasses(run, 4, epochs.back().value("firstPosition", 0) + (kSteps - last) * 3 * 16);

  // The same steps, a launch of its own for each number of workers, from a checkpoint.
  std::string digest;
  for (std::size_t e = 0; e < ranks.size(); ++e) {
    const bool ends = e + 1 == ranks.size();
    const std::int64_t until = !ends ? epochs[e + 1].value("firstStep", 0) : kSteps;
    std::vector<std::string> part_flags = flags;
    part_flags.insert(part_flags.end(), {"--set", fmt::format("training.steps={}", until)});
    JobRun part(folder("parts"), smallJob(2, ranks[e], 1), part_flags);
    const ProgramEnd part_end = part.launchAndWait();
    ASSERT_EQ(part_end.code, 0) << part_end.output;
    digest = part.digest();
  }
  EXPECT_EQ(run.digest(), digest) << "a switch has changed the weights";
}
INSTANTIATE_TEST_SUITE_P(, ScaleStrategies, testing::Bool(), [](const auto& info) {
  return info.param ? "AllReduce" : "ParameterServer";
});

TEST_F(ScaleTest, AJoinerThatIsKilledHoldsNobodyUp) {
  constexpr int kSteps = 400;
  JobRun run(folder("job"), smallJob(1, 2, kSteps));
  run.launch(run.slowSteps() + ";worker.start=pause,task=worker-2,life=1.1");
  ASSERT_TRUE(run.reaches("worker-0", 3));
  const auto lives = livesOf(run, {"ps-0", "worker-0", "worker-1"});
  ASSERT_EQ(scale(run, 3, {"--no-wait"}).code, 0);
  ASSERT_GT(stoppedTask(run, "worker-2"), 0);
  ASSERT_TRUE(goesOn(run)) << "the others do not wait for it";
  ASSERT_NO_FATAL_FAILURE(killTask(run, "worker-2"));
  const ProgramEnd scaled = scale(run, 3);
  ASSERT_EQ(scaled.code, 0) << scaled.output;
  ASSERT_TRUE(eventually([&] { return !run.positions("worker-2").empty(); }, kScaleLimit));
  EXPECT_EQ(livesOf(run, {"ps-0", "worker-0", "worker-1"}), lives);
  const ProgramEnd end = run.releaseAndWait();
  ASSERT_EQ(end.code, 0) << end.output;
  EXPECT_EQ(statusOf(run).value("lostSteps", 0), 0);
  const nlohmann::json epochs = epochsOf(run);
  ASSERT_EQ(epochs.size(), 2u) << epochs.dump();
  expectWholePasses(
      run, 3,
      epochs[1].value("firstPosition", 0) + (kSteps - epochs[1].value("firstStep", 0)) * 3 * 16);
}

TEST_F(ScaleTest, DuringACheckpointAndByTheEditedFile) {
  constexpr int kSteps = 400;
  JobRun run(folder("job"), smallJob(2, 3, kSteps),
             {"--set", "training.checkpoint.everySeconds=1", "--set", "worker.maxReplicas=4"});
  run.launch(run.slowSteps() + ";coordinator.commit=delay(1500)@1-300");
  ASSERT_TRUE(eventually(
      [&] {
        return run.taskLog("ps-0").find("coordinator.commit") != std::string::npos ||
               run.checkpointSteps().size() > 1;
      },
      kScaleLimit));
  ProgramEnd end = scale(run, 2);
  ASSERT_EQ(end.code, 0) << end.output;
  ASSERT_TRUE(goesOn(run));

  // Whoever edits the file is told what becomes of it.
  const std::filesystem::path file = run.dir() / "job.yaml";
  const std::string before = readFile(file, 1 << 20).value_or("");
  std::string text = before;
  const std::size_t worker = text.find("\n  worker:");
  ASSERT_NE(worker, std::string::npos);
  const std::size_t replicas = text.find("replicas: 2", worker);
  ASSERT_NE(replicas, std::string::npos);
  text.replace(replicas, 11, "replicas: 4");
  const std::size_t batch = text.find("batchSize: 16");
  ASSERT_NE(batch, std::string::npos);
  text.replace(batch, 13, "batchSize: 32");
  ASSERT_TRUE(writeFileAtomically(file, text).ok());
  ASSERT_TRUE(eventually([&] { return !run.positions("worker-3").empty(); }, kScaleLimit))
      << run.output();
  EXPECT_THAT(run.output(), ContainsRegex("job.yaml: worker.replicas: 2 -> 4"));
  EXPECT_THAT(run.output(), ContainsRegex("job.yaml: cannot change while the job runs, and is set "
                                          "back: training.batchSize: 16 -> 32"));
  EXPECT_THAT(readFile(file, 1 << 20).value_or(""), HasSubstr("batchSize: 16"));

  const ProgramEnd above = scale(run, 5);
  EXPECT_EQ(above.code, 2) << above.output;
  EXPECT_THAT(above.output, HasSubstr("spec.worker.replicas: 5 is above maxReplicas 4"));
  EXPECT_EQ(scale(run, 0).code, 2);
  end = run.releaseAndWait();
  ASSERT_EQ(end.code, 0) << end.output;
  expectUndisturbed(run);
  EXPECT_GE(run.checkpointSteps().size(), 2u);
  const nlohmann::json epochs = epochsOf(run);
  ASSERT_EQ(epochs.size(), 3u) << epochs.dump();
  expectWholePasses(
      run, 4,
      epochs[2].value("firstPosition", 0) + (kSteps - epochs[2].value("firstStep", 0)) * 4 * 16);
  const ProgramEnd late = scale(run, 2);
  EXPECT_EQ(late.code, 1);
  EXPECT_THAT(late.output, HasSubstr("has ended already: Succeeded"));
}

// Faster than tasks can come or go: what is left is what the last edit wants, and who was wanted by
// all of them has noticed nothing.
TEST_F(ScaleTest, OfManyEditsTheLastOneHolds) {
  constexpr int kSteps = 500;
  constexpr std::array<std::pair<int, int>, 20> kSizes{
      {{2, 4}, {1, 5}, {3, 3}, {2, 6}, {1, 2}, {3, 5}, {2, 3}, {1, 6}, {3, 4}, {2, 2},
       {1, 4}, {3, 6}, {2, 5}, {1, 3}, {3, 2}, {2, 4}, {1, 5}, {3, 6}, {1, 2}, {2, 3}}};
  JobRun run(folder("job"), smallJob(2, 2, kSteps));
  run.launch(run.slowSteps());
  ASSERT_TRUE(run.reaches("worker-0", 3));
  const std::vector<std::string> stayers = {"ps-0", "worker-0", "worker-1"};
  const auto lives = livesOf(run, stayers);
  const TimePoint first = systemClock().now();
  for (const auto& [ps, workers] : kSizes) {
    const ProgramEnd edit = scale(run, workers, {"--ps", fmt::format("{}", ps), "--no-wait"});
    ASSERT_EQ(edit.code, 0) << edit.output;
  }
  std::cout << fmt::format("{} edits in {:.2f} s\n", kSizes.size(),
                           toSeconds(systemClock().now() - first));
  ProgramEnd end = scale(run, kSizes.back().second, {"--ps", "2"});
  ASSERT_EQ(end.code, 0) << end.output;
  ASSERT_TRUE(goesOn(run));
  EXPECT_EQ(livesOf(run, stayers), lives);
  EXPECT_EQ(statusOf(run).at("worker").value("indices", ""), "0-2");
  EXPECT_EQ(statusOf(run).at("ps").value("indices", ""), "0-1");
  end = run.releaseAndWait();
  ASSERT_EQ(end.code, 0) << end.output;
  EXPECT_THAT(end.lastLine(), StartsWith(fmt::format("result: succeeded steps={} ", kSteps)));
  expectUndisturbed(run);
  const nlohmann::json epochs = epochsOf(run);
  ASSERT_FALSE(epochs.empty());
  EXPECT_EQ(epochs.back().value("ranks", 0), 3);
  const std::int64_t last = epochs.back().value("firstStep", 0);
  expectWholePasses(run, 6, epochs.back().value("firstPosition", 0) + (kSteps - last) * 3 * 16);
}

// A batch for all workers: the number of steps and their samples stay what they are, whoever comes
// and goes.
TEST_F(ScaleTest, AGlobalBatchStaysTheSame) {
  JobRun run(folder("job"), smallJob(1, 1, 1),
             {"--set", "training.steps=null", "--set", "training.passes=4", "--set",
              "training.batchSize=null", "--set", "training.globalBatchSize=50"});
  run.launch(run.slowSteps());
  ASSERT_TRUE(run.reaches("worker-0", 3));
  ASSERT_EQ(scale(run, 3).code, 0);
  ASSERT_TRUE(goesOn(run));
  ASSERT_EQ(scale(run, 2).code, 0);
  const ProgramEnd end = run.releaseAndWait();
  ASSERT_EQ(end.code, 0) << end.output;
  EXPECT_THAT(end.lastLine(), StartsWith("result: succeeded steps=240 "));
  expectUndisturbed(run);
  expectWholePasses(run, 3, 4 * kSamples);
  for (const auto& epoch : epochsOf(run)) EXPECT_EQ(epoch.value("stepSamples", 0), 50);
}

}  // namespace
}  // namespace trainyard
