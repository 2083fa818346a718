// Clipping by global norm, weight decay and warm-up in whole jobs: the same bits however the model
// lies on servers and whoever dies, and the right numbers.
#include <signal.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "base/process/files.h"
#include "fmt/format.h"
#include "tests/multiproc/run_fixture.h"

namespace trainyard {
namespace {

using testing::StartsWith;

constexpr int kHygieneSteps = 150;
constexpr char kOptimizer[] =
    "training.optimizer={name: RMSProp, learningRate: 0.002, momentum: 0.9, clipNorm: 0.4, "
    "weightDecay: 0.05, warmupSteps: 40}";

std::vector<std::string> setting(std::vector<std::string> sets) {
  std::vector<std::string> flags;
  for (std::string& set : sets) {
    flags.push_back("--set");
    flags.push_back(std::move(set));
  }
  return flags;
}

// metrics.jsonl's records of steps, the later of two records of one.
std::map<std::int64_t, nlohmann::json> stepRecords(const JobRun& run) {
  std::map<std::int64_t, nlohmann::json> records;
  std::ifstream in(run.dir() / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && json.contains("loss")) records[json.at("step")] = json;
  }
  return records;
}

class HygieneTest : public RunTest {
 protected:
  // The digest of the undisturbed job on one server, once for all tests.
  static std::string undisturbed() {
    static const std::string digest = [] {
      TempDir dir;
      JobRun run(dir.path(), smallJob(1, 3, kHygieneSteps), setting({kOptimizer}));
      EXPECT_EQ(run.launchAndWait().code, 0);
      return run.digest();
    }();
    return digest;
  }
  static void expectSuccess(JobRun& run) {
    const ProgramEnd end = run.wait();
    ASSERT_EQ(end.code, 0) << end.output;
    EXPECT_THAT(end.lastLine(),
                StartsWith(fmt::format("result: succeeded steps={} ", kHygieneSteps)));
    EXPECT_EQ(run.digest(), undisturbed());
  }
  // Weights of the checkpoint of `step`, all variables one after the other.
  std::vector<float> weightsAt(const JobRun& run, std::int64_t step) {
    const std::string path = (root() / fmt::format("{}.safetensors", step)).string();
    const ProgramEnd end = program({"trainyard", "checkpoint", "export", run.dir().string(),
                                    "--step", std::to_string(step), "--output", path});
    EXPECT_EQ(end.code, 0) << end.output;
    const auto bytes = readFile(path, 1 << 24);
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    std::uint64_t length = 0;
    std::memcpy(&length, bytes->data(), sizeof length);
    const auto header = nlohmann::json::parse(bytes->substr(8, length));
    std::vector<float> weights;
    for (const auto& [name, tensor] : header.items()) {
      if (name == "__metadata__" || tensor.at("dtype") != "F32") continue;
      const std::uint64_t begin = tensor.at("data_offsets")[0];
      const std::uint64_t end_at = tensor.at("data_offsets")[1];
      const std::size_t old = weights.size();
      weights.resize(old + (end_at - begin) / 4);
      std::memcpy(weights.data() + old, bytes->data() + 8 + length + begin, end_at - begin);
    }
    return weights;
  }
  // Norm of what the only step of a job of plain descent has changed.
  double changeOf(const JobRun& run) {
    const std::vector<float> before = weightsAt(run, 0);
    const std::vector<float> after = weightsAt(run, 1);
    EXPECT_EQ(before.size(), 64u * 32 + 32 + 32 * 4 + 4);
    EXPECT_EQ(before.size(), after.size());
    double squares = 0;
    for (std::size_t i = 0; i < std::min(before.size(), after.size()); ++i) {
      const double change = static_cast<double>(after[i]) - before[i];
      squares += change * change;
    }
    return std::sqrt(squares);
  }
};

TEST_F(HygieneTest, TheDigestIsTheSameOnAnyNumberOfServersAndAnyPlacement) {
  for (const int ps : {2, 3}) {
    JobRun run(folder(fmt::format("ps-{}", ps)), smallJob(ps, 3, kHygieneSteps),
               setting({kOptimizer}));
    run.launch("worker.push=delay(4)@50-60,task=worker-0;ps.request=delay(1)@70-75,task=ps-1");
    expectSuccess(run);
    int clipped = 0;
    const auto records = stepRecords(run);
    ASSERT_FALSE(records.empty());
    for (const auto& [step, record] : records) {
      ASSERT_TRUE(record.contains("grad_norm")) << record;
      clipped += record.at("grad_norm").get<double>() > 0.4;
    }
    EXPECT_GT(clipped, 2);
    EXPECT_LT(clipped, static_cast<int>(records.size())) << "some steps are short enough";
    EXPECT_FLOAT_EQ(records.at(1).at("learning_rate"), 0.002f / 40);
    EXPECT_FLOAT_EQ(records.at(20).at("learning_rate"), 0.002f / 2);
    EXPECT_FLOAT_EQ(records.at(40).at("learning_rate"), 0.002f);
  }
  for (const char* placement :
       {"{strategy: RoundRobin}", "{strategy: FixedSize, fixedSize: {shards: 2}}"}) {
    JobRun run(folder(fmt::format("placed-{}", placement[11])), smallJob(2, 3, kHygieneSteps),
               setting({kOptimizer, fmt::format("training.placement={}", placement)}));
    run.launch();
    expectSuccess(run);
  }
}

TEST_F(HygieneTest, AWorkerThatDiesInAClippedStepLosesNothing) {
  JobRun run(folder("worker"), smallJob(2, 3, kHygieneSteps), setting({kOptimizer}));
  run.launch("worker.push=delay(600000)@60,task=worker-1,life=1.1");
  ASSERT_TRUE(run.reaches("worker-0", 59));
  ASSERT_TRUE(run.reaches("worker-1", 59));
  ASSERT_NO_FATAL_FAILURE(killTask(run, "worker-1"));
  expectSuccess(run);
  EXPECT_EQ(run.json("status.json").at("status").value("lostSteps", 0), 0);
}

TEST_F(HygieneTest, AServerThatDiesReturnsAClippedJobToACheckpoint) {
  JobRun run(folder("server"), smallJob(2, 3, kHygieneSteps),
             setting({kOptimizer, "training.checkpoint.everySeconds=1"}));
  run.launch(run.slowSteps());
  ASSERT_TRUE(run.hasCheckpoint());
  ASSERT_TRUE(run.reaches("worker-0", run.newestCheckpoint() + 3));
  ASSERT_NO_FATAL_FAILURE(killTask(run, "ps-1"));
  run.releaseSteps();
  expectSuccess(run);
}

// Plain descent with rate 0.5 moves the weights by half the gradient: unclipped its norm is the one
// that the job records, clipped it is the limit.
TEST_F(HygieneTest, OneStepMovesTheWeightsByLearningRateTimesTheLimit) {
  const std::string job = smallJob(2, 1, 1);
  JobRun free(folder("free"), job,
              setting({"training.optimizer={name: SGD, learningRate: 0.5, clipNorm: 100}"}));
  ASSERT_EQ(free.launchAndWait().code, 0);
  const double norm = stepRecords(free).at(1).at("grad_norm");
  EXPECT_GT(norm, 0.1);
  EXPECT_LT(norm, 100);
  EXPECT_NEAR(changeOf(free) / (0.5 * norm), 1, 1e-4);

  JobRun clipped(folder("clipped"), job,
                 setting({"training.optimizer={name: SGD, learningRate: 0.5, clipNorm: 0.01}"}));
  ASSERT_EQ(clipped.launchAndWait().code, 0);
  EXPECT_EQ(stepRecords(clipped).at(1).at("grad_norm").get<double>(), norm) << "before clipping";
  EXPECT_NEAR(changeOf(clipped) / (0.5 * 0.01), 1, 1e-3);

  JobRun plain(folder("plain"), job,
               setting({"training.optimizer={name: SGD, learningRate: 0.5}"}));
  ASSERT_EQ(plain.launchAndWait().code, 0);
  EXPECT_EQ(plain.digest(), free.digest()) << "a limit that is not reached changes no bit";
  EXPECT_FALSE(stepRecords(plain).at(1).contains("grad_norm"));
}

// Without common steps a push is clipped by its own norm, before it leaves: with one worker the
// same as in Sync, but for the last bits.
TEST_F(HygieneTest, AnAsynchronousPushIsClippedByItsWorker) {
  for (const char* update : {"{mode: Async}", "{mode: Async, aggregate: 2}"}) {
    const std::string name = update[12] == '}' ? "async" : "aggregate";
    JobRun run(
        folder(name), smallJob(2, 1, 1),
        setting({"training.optimizer={name: SGD, learningRate: 0.5, clipNorm: 0.01}",
                 "training.deterministic=false", fmt::format("training.update={}", update)}));
    const ProgramEnd end = run.launchAndWait();
    ASSERT_EQ(end.code, 0) << end.output;
    const double norm = stepRecords(run).at(1).at("grad_norm");
    EXPECT_GT(norm, 0.1);
    // Two clipped pushes of other samples point elsewhere: their mean is no longer than the limit.
    const double change = changeOf(run) / (0.5 * 0.01);
    if (name == "async") {
      EXPECT_NEAR(change, 1, 1e-3);
    } else {
      EXPECT_LT(change, 1 + 1e-3);
      EXPECT_GT(change, 0.3);
    }
  }
}

}  // namespace
}  // namespace trainyard
