#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "CLI/CLI.hpp"
#include "cli/command.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace trainyard::cli {
namespace {

using ::testing::HasSubstr;

constexpr const char* kJob = R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: small}
spec:
  ps: {replicas: 2}
  worker: {replicas: 4}
  training:
    model: {name: mnist_cnn}
    data: {format: synthetic, shape: [28, 28, 1], classes: 10, samples: 1000}
    batchSize: 32
    steps: 10
    optimizer: {name: SGD, learningRate: 0.1}
)";

class ValidateTest : public ::testing::Test {
 protected:
  ValidateTest() : dir_(::testing::TempDir() + "/validate_" + std::to_string(::getpid())) {
    std::filesystem::create_directories(dir_);
    file_ = dir_ + "/job.yaml";
    std::ofstream(file_) << kJob;
  }
  ~ValidateTest() override { std::filesystem::remove_all(dir_); }

  // Arguments after "validate -f FILE"; the exit code.
  int run(std::vector<std::string> arguments) {
    CLI::App app;
    ChosenCommand chosen;
    registerValidate(app, chosen);
    arguments.insert(arguments.begin(), {"validate", "-f", file_});
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    app.parse(reversed);
    out_.str("");
    err_.str("");
    return chosen(Console{out_, err_, false, false, 80, ""});
  }

  std::string dir_;
  std::string file_;
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(ValidateTest, SaysWhatIsValid) {
  EXPECT_EQ(run({}), 0);
  EXPECT_EQ(out_.str(), file_ + ": valid (TrainingJob small: 2 ps, 4 workers)\n");
  EXPECT_EQ(err_.str(), "");
  EXPECT_EQ(run({"--set", "worker.replicas=1", "--set", "strategy=AllReduce", "--set", "ps="}), 0);
  EXPECT_EQ(out_.str(), file_ + ": valid (TrainingJob small: 1 worker)\n");
}

TEST_F(ValidateTest, PrintsEveryProblemOnALine) {
  EXPECT_EQ(run({"--set", "training.steps=0", "--set", "training.stepz=5"}), 2);
  EXPECT_EQ(out_.str(), "");
  EXPECT_EQ(
      err_.str(),
      "--set training.steps=0: spec.training.steps: 0 is below the minimum 1\n"
      "--set training.stepz=5: spec.training.stepz: unknown field; did you mean \"steps\"?\n");
  std::ofstream(file_) << "a: [\n";
  EXPECT_EQ(run({}), 2);
  EXPECT_THAT(err_.str(), HasSubstr(file_ + ":1: not valid YAML"));
  file_ = dir_ + "/absent.yaml";
  EXPECT_EQ(run({}), 2);
  EXPECT_EQ(err_.str(), file_ + ": No such file or directory\n");
}

TEST_F(ValidateTest, JsonIsTheResolvedJob) {
  EXPECT_EQ(run({"-o", "json"}), 0);
  const auto job = nlohmann::json::parse(out_.str());
  EXPECT_EQ(job["spec"]["training"]["placement"]["strategy"], "Balanced");
  EXPECT_EQ(job["spec"]["training"]["steps"], 10);
}

TEST_F(ValidateTest, RefusesWrongArguments) {
  EXPECT_THROW(run({"--set", "steps"}), CLI::ValidationError);
  EXPECT_THROW(run({"--set", "=1"}), CLI::ValidationError);
  EXPECT_THROW(run({"-o", "xml"}), CLI::ValidationError);
}

}  // namespace
}  // namespace trainyard::cli
