// Whole runs of TorchScript modules, by trainyard-runtime-torch.
#include <filesystem>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "tests/multiproc/run_fixture.h"
#include "tests/runtime/model/script_fixture.h"

namespace trainyard {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class ScriptRunTest : public RunTest {
 protected:
  std::string job(int ps, int workers) {
    writeScript(file_, kPixels, 4);
    return fmt::format(R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: script}}
spec:
  ps: {{replicas: {}}}
  worker: {{replicas: {}}}
  training:
    model: {{name: torchscript, path: {}}}
    data: {{format: synthetic, shape: [6, 6, 1], classes: 4, samples: 400, evalSamples: 100}}
    batchSize: 8
    steps: 30
    deterministic: true
    optimizer: {{name: Momentum, learningRate: 0.1}}
    checkpoint: {{everySeconds: 1}}
)",
                       ps, workers, file_);
  }
  static std::vector<std::string> bufferFiles(const JobRun& run) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(run.dir() / "checkpoints")) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("buffers.")) names.push_back(name);
    }
    return names;
  }

  static constexpr int kPixels = 36;
  const std::string file_ = (root() / "model.pt").string();
};

TEST_F(ScriptRunTest, TrainsFromTheFilesValuesAndEvaluatesWithTheChiefsBuffers) {
  JobRun run(folder("one"), job(2, 1));
  const ProgramEnd end = run.launchAndWait();
  ASSERT_EQ(end.code, 0) << end.output;
  EXPECT_THAT(end.lastLine(), StartsWith("result: succeeded steps=30 "));
  EXPECT_THAT(bufferFiles(run), testing::Contains("buffers.step-30.pt"));
  const ProgramEnd evaluation =
      program({"trainyard", "checkpoint", "evaluate", run.dir().string()});
  ASSERT_EQ(evaluation.code, 0) << evaluation.output;
  EXPECT_EQ(fieldsOf(evaluation.lastLine()).at("accuracy"),
            fieldsOf(end.lastLine()).at("accuracy"));
  // Four classes: it has learnt.
  EXPECT_GT(std::stod(fieldsOf(end.lastLine()).at("accuracy")), 0.5) << end.output;
}

TEST_F(ScriptRunTest, TheWeightsAreTheSameForAnyNumberOfServers) {
  JobRun one(folder("one"), job(1, 2));
  const ProgramEnd first = one.launchAndWait();
  ASSERT_EQ(first.code, 0) << first.output;
  JobRun three(folder("three"), job(3, 2));
  const ProgramEnd second = three.launchAndWait();
  ASSERT_EQ(second.code, 0) << second.output;
  EXPECT_EQ(one.digest(), three.digest());
}

// An embedding whose gradient autograd gives as sparse rows: parameter servers and all-reduce make
// the same of it.
TEST_F(ScriptRunTest, EmbeddingsWithSparseGradientsAreTrained) {
  const std::string yaml = job(2, 3);
  ScriptOptions options;
  options.embedding = true;
  options.source = kEmbeddingSource;
  writeScript(file_, kPixels, 4, options);
  JobRun servers(folder("servers"), yaml, {"--set", "training.steps=60"});
  const ProgramEnd first = servers.launchAndWait();
  ASSERT_EQ(first.code, 0) << first.output;
  JobRun ring(folder("ring"), yaml,
              {"--set", "training.steps=60", "--set", "strategy=AllReduce", "--set", "ps="});
  const ProgramEnd second = ring.launchAndWait();
  ASSERT_EQ(second.code, 0) << second.output;
  EXPECT_EQ(ring.digest(), servers.digest());
  EXPECT_GT(std::stod(fieldsOf(second.lastLine()).at("accuracy")), 0.5) << second.output;
}

// The last versions are mostly another worker's pushes: the chief's buffers are saved with them all
// the same. Here the chief's pass on step 60 or so is over after the job, by some checkpoints.
TEST_F(ScriptRunTest, AsynchronousCheckpointsHaveTheChiefsBuffers) {
  JobRun run(folder("async"), job(2, 2),
             {"--set", "training.deterministic=false", "--set", "training.update.mode=Async",
              "--set", "training.steps=120"});
  run.launch(
      "worker.compute=delay(40),task=worker-1;"
      "worker.compute=delay(40)@0-59,task=worker-0;"
      "worker.compute=delay(5000)@60-120,task=worker-0");
  const ProgramEnd end = run.wait();
  ASSERT_EQ(end.code, 0) << end.output;
  const std::vector<std::string> files = bufferFiles(run);
  for (const std::int64_t step : run.checkpointSteps()) {
    if (step == 0) continue;
    EXPECT_THAT(files, testing::Contains(fmt::format("buffers.step-{}.pt", step)));
  }
  EXPECT_GT(run.checkpointSteps().size(), 1u);
  const ProgramEnd evaluation =
      program({"trainyard", "checkpoint", "evaluate", run.dir().string()});
  ASSERT_EQ(evaluation.code, 0) << evaluation.output;
  EXPECT_EQ(fieldsOf(evaluation.lastLine()).at("accuracy"),
            fieldsOf(end.lastLine()).at("accuracy"));
}

// The task that has the disk stays until the chief has written what it keeps last.
TEST_F(ScriptRunTest, TheLastBuffersReachTheTaskWithTheDisk) {
  JobRun run(folder("disk"), job(2, 2), {"--set", "storage.access=Coordinator"});
  const ProgramEnd end = run.launchAndWait("worker.beside=delay(3000)@30");
  ASSERT_EQ(end.code, 0) << end.output;
  EXPECT_THAT(bufferFiles(run), testing::Contains("buffers.step-30.pt"));
  EXPECT_THAT(run.taskLog("worker-0"), testing::Not(HasSubstr("buffers of step")));
}

TEST_F(ScriptRunTest, ThePlanKnowsItsVariables) {
  const std::string file = writeText("job.yaml", job(2, 2)).string();
  const ProgramEnd end = program({"trainyard", "plan", "-f", file, "-o", "json"});
  ASSERT_EQ(end.code, 0) << end.output;
  const auto plan = nlohmann::json::parse(end.output);
  EXPECT_EQ(plan.at("model"), "torchscript");
  std::int64_t bytes = 0;
  for (const auto& ps : plan.at("ps")) bytes += ps.at("bytes").get<std::int64_t>();
  EXPECT_EQ(bytes, 4 + 4 * (kPixels * 4 + 4)) << "global_step, weight and bias";
  ASSERT_EQ(plan.at("variables").size(), 3u);
  EXPECT_EQ(plan.at("variables")[1].at("name"), "weight");

  writeText("model.pt", "no module");
  const ProgramEnd bad = program({"trainyard", "plan", "-f", file});
  EXPECT_EQ(bad.code, 2) << bad.output;
  EXPECT_THAT(bad.output, HasSubstr("model.path: " + file_ + ": no TorchScript module"));
}

TEST_F(ScriptRunTest, AFileThatIsNoModuleFailsTheJobByName) {
  const std::string yaml = job(1, 1);
  writeText("model.pt", "no module");
  JobRun run(folder("bad"), yaml);
  const ProgramEnd end = run.launchAndWait();
  EXPECT_EQ(end.code, 1) << end.output;
  EXPECT_THAT(end.output, HasSubstr("model.path: " + file_ + ": no TorchScript module"));
}

}  // namespace
}  // namespace trainyard
