// Jobs over clicks: of files as others have them, in each order, read ahead or not.
#include <cstdlib>
#include <fstream>
#include <set>

#include "fmt/format.h"
#include "tests/multiproc/run_fixture.h"
#include "tests/runtime/data/tensorflow_examples.h"

namespace trainyard {
namespace {

// `data` in the flow style.
std::string jobOver(const std::string& data, int batch, int passes) {
  return fmt::format(R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: clicks}}
spec:
  ps: {{replicas: 1}}
  worker: {{replicas: 2}}
  training:
    model: {{name: wide_and_deep, hidden: [8]}}
    data: {}
    tables:
    - {{name: user, features: [user], dim: 4, rows: {{max: 10000}}, initial: {{distribution: Uniform, scale: 0.01}}}}
    batchSize: {}
    passes: {}
    seed: 3
    deterministic: true
    optimizer: {{name: Adagrad, learningRate: 0.05}}
)",
                     data, batch, passes);
}

constexpr const char* kMadeUp =
    "{format: synthetic_ctr, samples: 3000, columns: [{name: user, kind: Id, ids: 1000}, "
    "{name: age, kind: Number}, {name: click, kind: Label}]}";

class ClicksTest : public RunTest {
 protected:
  static std::string source(const std::string& file) {
    return std::string(std::getenv("TRAINYARD_SOURCE")) + "/" + file;
  }
  static std::vector<std::string> settings(const std::vector<std::string>& values) {
    std::vector<std::string> flags;
    for (const std::string& value : values) {
      flags.emplace_back("--set");
      flags.push_back(value);
    }
    return flags;
  }
};

// Passes end within a step, and the last step is short: what is read ahead is not always what
// comes.
TEST_F(ClicksTest, OrdersGiveResultsOfTheirOwnAndReadingAheadGivesTheSame) {
  std::set<std::string> digests;
  for (const std::vector<std::string>& order : std::vector<std::vector<std::string>>{
           {}, {"data.order=Blocks", "data.blockSamples=100"}, {"data.order=Sequential"}}) {
    std::vector<std::string> values;
    for (const std::string& setting : order) values.push_back("training." + setting);
    const std::string name = fmt::format("order-{}", digests.size());
    JobRun run(folder(name), jobOver(kMadeUp, 32, 2), settings(values));
    const ProgramEnd end = run.launchAndWait();
    ASSERT_EQ(end.code, 0) << end.output;
    expectEachPositionOnce(run, 2, 6000);
    const std::string digest = run.digest();
    EXPECT_TRUE(digests.insert(digest).second) << name;
    values.emplace_back("training.data.prefetch=3");
    JobRun ahead(folder(name + "-ahead"), jobOver(kMadeUp, 32, 2), settings(values));
    const ProgramEnd again = ahead.launchAndWait();
    ASSERT_EQ(again.code, 0) << again.output;
    EXPECT_EQ(ahead.digest(), digest) << name;
  }
}

TEST_F(ClicksTest, TheExampleLearnsFromFilesOfCriteosForm) {
  const std::string files = root() / "criteo";
  const ProgramEnd made =
      program({"/usr/bin/env", "python3", source("examples/ctr/make_criteo_sample.py"), files,
               "--samples", "20000", "--eval", "3000"});
  ASSERT_EQ(made.code, 0) << made.output;
  std::ifstream example(source("examples/ctr/criteo.yaml"));
  const std::string job((std::istreambuf_iterator<char>(example)), {});
  std::vector<std::string> flags = settings({"training.batchSize=128", "training.passes=2"});
  flags.insert(flags.end(), {"--volume", "data=" + files});
  JobRun run(folder("run"), job, flags);
  const ProgramEnd end = run.launchAndWait();
  ASSERT_EQ(end.code, 0) << end.output;
  EXPECT_GT(std::stod(fieldsOf(end.lastLine())["auc"]), 0.6) << end.lastLine();
}

TEST_F(ClicksTest, LearnsFromExamplesOfTensorFlows) {
  const std::string file = (folder("data") / "examples.tfrecord").string();
  std::ofstream(file, std::ios::binary) << runtime::tensorFlowExamples();
  const std::string data = fmt::format(
      "{{format: tfrecord, files: [\"{0}\"], evalFiles: [\"{0}\"], columns: [{{name: user, kind: "
      "Id}}, "
      "{{name: age, kind: Number}}, {{name: click, kind: Label}}]}}",
      file);
  JobRun run(folder("run"), jobOver(data, 1, 3));
  const ProgramEnd end = run.launchAndWait();
  ASSERT_EQ(end.code, 0) << end.output;
  EXPECT_THAT(end.lastLine(), testing::HasSubstr("steps=6"));
}

}  // namespace
}  // namespace trainyard
