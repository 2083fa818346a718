// The verb as a user types it, on a job file.
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/core/exit_code.h"
#include "cli/command.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace trainyard::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kPlannedJob[] = R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: comparison}
spec:
  ps: {replicas: 2}
  worker: {replicas: 7}
  training:
    model: {name: mnist_cnn}
    data: {format: synthetic, shape: [28, 28, 1], classes: 10, samples: 1000}
    batchSize: 128
    steps: 100
    optimizer: {name: RMSProp, learningRate: 0.001}
    placement: {strategy: RoundRobin}
)";

class PlanCommand : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "plan-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    file_ = folder_ + "/job.yaml";
    std::ofstream(file_) << kPlannedJob;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Exit code of `trainyard plan <arguments>`; kExitUsage for what the command line refuses.
  int run(std::vector<std::string> arguments) {
    CLI::App app;
    ChosenCommand chosen;
    registerPlan(app, chosen);
    arguments.insert(arguments.begin(), "plan");
    std::reverse(arguments.begin(), arguments.end());
    try {
      app.parse(arguments);
    } catch (const CLI::ParseError& error) {
      err_ << error.what();
      return kExitUsage;
    }
    return chosen(Console{out_, err_, false, false, 80, ""});
  }

  std::string folder_;
  std::string file_;
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(PlanCommand, PrintsTheBytesOfEveryPs) {
  EXPECT_EQ(run({"-f", file_}), kExitOk) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("ps0 4,524 "));
  EXPECT_THAT(out_.str(), HasSubstr("ps1 13,094,016 "));
  EXPECT_THAT(err_.str(), IsEmpty());
}

TEST_F(PlanCommand, SetChangesTheJob) {
  EXPECT_EQ(run({"--set", "training.placement.strategy=FixedSize", "--set",
                 "spec.training.placement.fixedSize.shards=2", "-f", file_}),
            kExitOk)
      << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("ps0 6,528,472 "));
  EXPECT_THAT(out_.str(), HasSubstr("ps1 6,570,068 "));
}

TEST_F(PlanCommand, AcceptsVgg19) {
  EXPECT_EQ(run({"-f", file_, "--set", "training.model.name=vgg19", "--set",
                 "training.data.shape=[224, 224, 3]", "--set", "training.data.classes=1000"}),
            kExitOk)
      << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("ps1 574,610,176 "));
}

TEST_F(PlanCommand, JsonForScripts) {
  EXPECT_EQ(run({"-f", file_, "-o", "json"}), kExitOk) << err_.str();
  const auto json = nlohmann::json::parse(out_.str());
  EXPECT_EQ(json["ps"][1]["bytes"], 13'094'016);
  EXPECT_EQ(json["job"], "comparison");
}

TEST_F(PlanCommand, JsonPredictsSecondsForScripts) {
  EXPECT_EQ(run({"-f", file_, "-o", "json", "--bandwidth", "1Gbit", "--step-seconds", "0.05",
                 "--machines", "9", "--scale", "1..4"}),
            kExitOk)
      << err_.str();
  const auto json = nlohmann::json::parse(out_.str());
  EXPECT_NEAR(json["prediction"]["ps"][1]["inSeconds"].get<double>(), 0.7333, 5e-4);
  EXPECT_NEAR(json["prediction"]["ps"][1]["outSeconds"].get<double>(), 0.8380, 5e-4);
  EXPECT_NEAR(json["prediction"]["stepSeconds"].get<double>(), 0.8880, 5e-4);
  EXPECT_EQ(json["prediction"]["duplexFactor"], 1);
  EXPECT_EQ(json["cost"]["scale"].size(), 4u);
  EXPECT_EQ(json["cost"]["modelBytes"], 13'098'536);
  EXPECT_EQ(json["ps"][1]["bytes"], 13'094'016) << "what it said before stays";
}

TEST_F(PlanCommand, WithoutReplicasAStepIsPredictedShorter) {
  EXPECT_EQ(run({"-f", file_, "-o", "json", "--bandwidth", "1Gbit", "--step-seconds", "0.05",
                 "--set", "training.chunkReplicas=Never"}),
            kExitOk)
      << err_.str();
  const auto json = nlohmann::json::parse(out_.str());
  EXPECT_NEAR(json["prediction"]["ps"][1]["outSeconds"].get<double>(), 0.7333, 5e-4);
  EXPECT_NEAR(json["prediction"]["stepSeconds"].get<double>(), 0.7833, 5e-4);
}

TEST_F(PlanCommand, SimulatedStepsNeedNoSecondTelling) {
  EXPECT_EQ(run({"-f", file_, "-o", "json", "--bandwidth", "1Gbit", "--set",
                 "training.model.simulatedStepSeconds=0.25"}),
            kExitOk)
      << err_.str();
  const auto json = nlohmann::json::parse(out_.str());
  EXPECT_DOUBLE_EQ(json["prediction"]["computeSeconds"].get<double>(), 0.25);
}

TEST_F(PlanCommand, WrongInputIsAUsageErrorThatNamesIt) {
  EXPECT_EQ(run({"-f", folder_ + "/none.yaml"}), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("none.yaml"));
  EXPECT_EQ(run({"-f", file_, "--set", "training.placement.strategy=Fair"}), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("spec.training.placement.strategy"));
  EXPECT_EQ(run({"-f", file_, "--set", "steps"}), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("\"steps\" is not PATH=VALUE"));
  EXPECT_EQ(run({"-f", file_, "-o", "xml"}), kExitUsage);
  EXPECT_EQ(run({"-f", file_, "--set", "training.placement.rules=[{match: \"fc9*\", ps: 1}]"}),
            kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("spec.training.placement.rules[0].match: \"fc9*\""));
  EXPECT_THAT(out_.str(), IsEmpty());
}

}  // namespace
}  // namespace trainyard::cli
