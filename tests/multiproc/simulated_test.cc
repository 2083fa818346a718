// Jobs whose workers compute nothing and only take time.
#include <cmath>
#include <fstream>

#include "fmt/format.h"
#include "tests/multiproc/run_fixture.h"

namespace trainyard {
namespace {

using testing::StartsWith;

std::string simulatedJob(const std::string& model, const std::string& data, int workers,
                         int steps) {
  return fmt::format(R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: simulated}}
spec:
  ps: {{replicas: 2}}
  worker: {{replicas: {}}}
  training:
    model: {}
    data: {}
    batchSize: 2
    steps: {}
    deterministic: true
    optimizer: {{name: SGD, learningRate: 0.5}}
)",
                     workers, model, data, steps);
}

std::vector<nlohmann::json> lossRecords(const JobRun& run) {
  std::vector<nlohmann::json> records;
  std::ifstream in(run.dir() / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && json.contains("loss")) records.push_back(std::move(json));
  }
  return records;
}

class SimulatedTest : public RunTest {
 protected:
  // Whole seconds of training of `steps` steps, as the chief measured them.
  double trainSeconds(const std::string& name, const std::string& failpoints, int steps) {
    JobRun run(folder(name),
               simulatedJob("{name: mlp, hidden: [8], simulatedStepSeconds: 0.05}",
                            "{format: synthetic, shape: [8, 8, 1], classes: 4, samples: 3000, "
                            "evalSamples: 100}",
                            4, steps));
    const ProgramEnd end = run.launchAndWait(failpoints);
    EXPECT_EQ(end.code, 0) << end.output;
    EXPECT_THAT(end.lastLine(), StartsWith(fmt::format("result: succeeded steps={} ", steps)));
    const auto records = lossRecords(run);
    EXPECT_FALSE(records.empty());
    if (records.empty()) return 0;
    EXPECT_NEAR(records.back().at("loss").get<double>(), std::log(4.0), 1e-6);
    return records.back().at("train_seconds").get<double>();
  }
};

// Four workers and two servers on whatever processors there are: nobody computes, so a step takes
// its 50 ms and what the exchange of a tiny model needs. A slow worker makes all wait for it.
TEST_F(SimulatedTest, AStepTakesWhatItIsSaidToTakeAndWaitsForTheSlowest) {
  constexpr int kSteps = 20;
  EXPECT_GE(trainSeconds("even", "", kSteps), kSteps * 0.05);
  // The slow worker may begin its first step before the chief, whose clock counts.
  EXPECT_GE(trainSeconds("slow", "worker.compute=delay(250),task=worker-3", kSteps),
            (kSteps - 1) * 0.30);
}

// vgg19 in 32x32 has 39 million parameters.
TEST_F(SimulatedTest, Vgg19RunsAndItsWeightsAreThoseOfConstantGradients) {
  const auto digest = [&](const std::string& name, int servers) {
    JobRun run(
        folder(name),
        simulatedJob("{name: vgg19, simulatedStepSeconds: 0.02}",
                     "{format: synthetic, shape: [32, 32, 3], classes: 10, samples: 100}", 2, 3),
        {"--set", fmt::format("ps.replicas={}", servers)});
    const ProgramEnd end = run.launchAndWait();
    EXPECT_EQ(end.code, 0) << end.output;
    return run.digest();
  };
  const std::string one = digest("one", 1);
  EXPECT_FALSE(one.empty());
  EXPECT_EQ(digest("two", 2), one);
}

}  // namespace
}  // namespace trainyard
