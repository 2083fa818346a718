// Which records a chief's later ones make void: those of steps that are taken again, and no others.
#include "runtime/task/run_log.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "gtest/gtest.h"
#include "tests/base/process/temp_dir.h"

namespace trainyard::runtime {
namespace {

class RunLogTest : public testing::Test {
 protected:
  std::unique_ptr<RunLog> start() {
    v1::OptimizerSpec spec;
    spec.set_name("SGD");
    auto log = RunLog::open(dir_.path().string(), dir_.path().string(), LearningRate(spec), 5,
                            systemClock());
    EXPECT_TRUE(log.ok()) << log.status();
    return *std::move(log);
  }
  static void step(RunLog& log, std::int64_t version) {
    StepRecord record;
    record.step = version - 1;
    EXPECT_TRUE(log.onStep(record).ok());
  }
  static void evaluation(RunLog& log, std::int64_t version) {
    v1::Evaluation result;
    result.set_version(version);
    result.set_samples(4);
    result.set_hits(1);
    log.onEvaluation(result);
  }
  // TensorBoard forgets with each further file what its first step makes void.
  std::size_t files() const {
    const std::filesystem::directory_iterator found(dir_.path() / "events");
    return static_cast<std::size_t>(std::distance(begin(found), end(found)));
  }

  TempDir dir_;
};

TEST_F(RunLogTest, AnEvaluationThatComesLateMakesNothingVoid) {
  const auto log = start();
  for (const int version : {15, 20, 25}) step(*log, version);
  evaluation(*log, 20);
  step(*log, 30);
  EXPECT_EQ(files(), 1U);
}

TEST_F(RunLogTest, AccuracyOfTrainingIsToldWhereItIsCounted) {
  const auto log = start();
  step(*log, 5);
  StepRecord record;
  record.step = 9;
  record.accuracy = 0.75;
  EXPECT_TRUE(log->onStep(record).ok());
  std::ifstream lines(dir_.path() / "metrics.jsonl");
  std::string first, second;
  ASSERT_TRUE(std::getline(lines, first) && std::getline(lines, second));
  EXPECT_EQ(first.find("training_accuracy"), std::string::npos) << first;
  EXPECT_NE(second.find(R"("training_accuracy":0.75)"), std::string::npos) << second;
}

TEST_F(RunLogTest, AStepThatIsTakenAgainDoes) {
  const auto log = start();
  for (const int version : {15, 20, 15}) step(*log, version);
  EXPECT_EQ(files(), 2U);
}

// The chief that was started again hears of the evaluation before it takes a step.
TEST_F(RunLogTest, AnEvaluationOfAnEarlierStartMakesNothingVoidEither) {
  const auto log = start();
  evaluation(*log, 20);
  ASSERT_EQ(files(), 1U);
  std::stringstream text;
  text << std::ifstream(std::filesystem::directory_iterator(dir_.path() / "events")->path(),
                        std::ios::binary)
              .rdbuf();
  // Event.step of the start, field 2 as a varint: the largest there is, and not 20.
  EXPECT_NE(text.str().find("\x10\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), std::string::npos);
  EXPECT_EQ(text.str().find(std::string("\x10\x14\x3a", 3)), std::string::npos);
  step(*log, 25);
  EXPECT_EQ(files(), 2U);
}

}  // namespace
}  // namespace trainyard::runtime
