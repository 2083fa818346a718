// From what a program says to a member's calls, with a job of one worker that is a few lines of
// memory.
#include "runtime/program/program_host.h"

#include <memory>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/process/temp_dir.h"
#include "tests/runtime/train/fake_synchronizer.h"

namespace trainyard::runtime {
namespace {

using session::Declaration;
using session::SessionMemory;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Declaration kModel{
    .samples = 8,
    .eval_samples = 5,
    .variables = {{"w", {2}}, {"seen", {}, ElementType::kInt64, false}, {"b", {}}}};

// A job that ends when it is left.
class FakeJob final : public ProgramJob {
 public:
  StatusOr<Synchronizer*> make(const DeclaredModel& made,
                               std::vector<std::span<float>> weights) override {
    model = made;
    synchronizer = std::make_unique<FakeSynchronizer>(
        FakeSynchronizer::Options{.samples = 2, .evaluate_every = 1}, std::move(weights));
    return synchronizer.get();
  }
  void join() override { joined = true; }
  Status leave(const Status& end) override {
    ++left;
    return end;
  }

  std::optional<DeclaredModel> model;
  std::unique_ptr<FakeSynchronizer> synchronizer;
  bool joined = false;
  int left = 0;
};

class Steps final : public TrainObserver {
 public:
  Status onStep(const StepRecord& record) override {
    records.push_back(record);
    return absl::OkStatus();
  }
  std::vector<StepRecord> records;
};

class ProgramHostTest : public testing::Test {
 protected:
  std::unique_ptr<ProgramHost> hostOf(bool chief, session::Cancelled cancelled = {}) {
    return std::make_unique<ProgramHost>(
        ProgramHost::Options{.chief = chief,
                             .model_path = declaredModelPath(dir_.path().string()),
                             .seed = 1,
                             .cancelled = std::move(cancelled)},
        job_, steps_, systemClock());
  }
  // As the program does it: declares, and puts its first weights in place.
  void declare(ProgramHost& host, float first) {
    const auto place = host.declare(kModel);
    ASSERT_TRUE(place.ok()) << place.status();
    memory_.emplace(*SessionMemory::open(kModel, *place));
    floats(0)[0] = first;
  }
  std::span<float> floats(std::size_t variable) {
    const auto value = memory_->value(variable);
    return {reinterpret_cast<float*>(value.data()), value.size() / sizeof(float)};
  }
  StatusOr<session::Outcome> step(ProgramHost& host, float gradient) {
    for (const std::uint32_t variable : {2, 0}) {
      for (float& value : memory_->gradient(variable)) value = gradient;
      host.push(variable);
    }
    return host.finish({.loss_sum = 6, .samples = 2});
  }

  TempDir dir_;
  FakeJob job_;
  Steps steps_;
  std::optional<SessionMemory> memory_;
};

TEST_F(ProgramHostTest, TrainsWhatTheChiefsProgramDeclares) {
  const auto host = hostOf(true);
  declare(*host, 10);
  EXPECT_FALSE(job_.joined);
  const auto turn = host->next();
  ASSERT_TRUE(turn.ok()) << turn.status();
  EXPECT_TRUE(job_.joined);
  EXPECT_EQ(job_.model->declaration, kModel);
  EXPECT_THAT(job_.model->layout.values[1], ElementsAre(10, 0));
  EXPECT_EQ(turn->turn.kind, Turn::Kind::kTrain);
  EXPECT_EQ(turn->samples.size(), 2U);
  const auto outcome = step(*host, 4);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->complete);
  EXPECT_EQ(outcome->loss, 3);
  EXPECT_THAT(floats(0), ElementsAre(8, -2));  // 10 - 4 / 2
  EXPECT_THAT(floats(2), ElementsAre(-2));
  ASSERT_EQ(steps_.records.size(), 1U);
  EXPECT_EQ(steps_.records[0].samples, 2);

  const auto evaluation = host->next();
  ASSERT_TRUE(evaluation.ok());
  EXPECT_EQ(evaluation->turn.kind, Turn::Kind::kEvaluate);
  EXPECT_EQ(std::pair(evaluation->turn.first_position, evaluation->turn.samples),
            std::pair(std::int64_t{0}, 5));
  host->evaluated({.hits = 3, .samples = 5, .loss_sum = 1});
  ASSERT_EQ(job_.synchronizer->scores.size(), 1U);
  EXPECT_EQ(job_.synchronizer->scores[0].hits, 3);

  job_.synchronizer->end(Turn::Kind::kDone);
  EXPECT_FALSE(host->end().has_value());
  const auto done = host->next();
  ASSERT_TRUE(done.ok());
  EXPECT_EQ(done->turn.kind, Turn::Kind::kDone);
  EXPECT_EQ(job_.left, 1);
  EXPECT_TRUE(host->end()->ok());
}

// The next gradients are the program's to write although the last ones are still on their way.
TEST_F(ProgramHostTest, WhatIsHandedOverIsACopy) {
  const auto host = hostOf(true);
  declare(*host, 0);
  ASSERT_TRUE(host->next().ok());
  memory_->gradient(0)[0] = 1;
  host->push(0);
  memory_->gradient(0)[0] = 99;
  memory_->gradient(2)[0] = 0;
  host->push(2);
  ASSERT_TRUE(host->finish({.loss_sum = 0, .samples = 2}).ok());
  EXPECT_EQ(floats(0)[0], -0.5F);
}

TEST_F(ProgramHostTest, TheFirstWeightsAreTheChiefs) {
  const auto chief = hostOf(true);
  declare(*chief, 10);
  ASSERT_TRUE(chief->next().ok());
  const auto other = hostOf(false);
  declare(*other, 77);
  ASSERT_TRUE(other->next().ok());
  EXPECT_THAT(job_.model->layout.values[1], ElementsAre(10, 0));
  // Also of a chief that is started again, whatever its program puts there.
  const auto again = hostOf(true);
  declare(*again, 55);
  ASSERT_TRUE(again->next().ok());
  EXPECT_THAT(job_.model->layout.values[1], ElementsAre(10, 0));
}

TEST_F(ProgramHostTest, WhoeverDeclaresAnotherModelIsRefused) {
  const auto chief = hostOf(true);
  declare(*chief, 10);
  ASSERT_TRUE(chief->next().ok());
  Declaration wider = kModel;
  wider.variables[0].shape = {3};
  const auto refused = hostOf(false)->declare(wider);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("variable 0: w float32 [3], here w float32 [2]"));
  EXPECT_EQ(hostOf(true)->declare(wider).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ProgramHostTest, NobodyWaitsForAChiefWhenItsOwnProgramHasEnded) {
  const auto host = hostOf(false, [] { return true; });
  declare(*host, 1);
  EXPECT_TRUE(absl::IsCancelled(host->next().status()));
  EXPECT_FALSE(job_.joined);
}

TEST_F(ProgramHostTest, AStepThatIsNotWholeIsRefused) {
  const auto host = hostOf(true);
  declare(*host, 0);
  ASSERT_TRUE(host->next().ok());
  for (const std::uint32_t variable : {2, 0}) host->push(variable);
  EXPECT_THAT(std::string(host->finish({.loss_sum = 0, .samples = 1}).status().message()),
              HasSubstr("step 0: 1 samples were computed, it has 2"));
}

// A gradient that is not finite ends the job, as it does with a model of ours.
TEST_F(ProgramHostTest, AGradientThatIsNotFiniteEndsTheJob) {
  const auto host = hostOf(true);
  declare(*host, 0);
  ASSERT_TRUE(host->next().ok());
  ASSERT_TRUE(step(*host, std::numeric_limits<float>::infinity()).ok());
  EXPECT_EQ(job_.synchronizer->aborted, "0|b|the gradient is not finite");
}

TEST_F(ProgramHostTest, AProgramThatGivesUpEndsTheJobWithItsReason) {
  const auto host = hostOf(true);
  declare(*host, 0);
  ASSERT_TRUE(host->next().ok());
  job_.synchronizer->fail("ValueError at step 0");
  host->abort("ValueError at step 0");
  EXPECT_EQ(job_.synchronizer->aborted, "0||ValueError at step 0");
  ASSERT_TRUE(host->end().has_value());
  EXPECT_EQ(host->end()->code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(job_.left, 1);
}

TEST_F(ProgramHostTest, AFailedJobIsToldAndLeft) {
  const auto host = hostOf(true);
  declare(*host, 0);
  ASSERT_TRUE(host->next().ok());
  ASSERT_TRUE(step(*host, 0).ok());
  job_.synchronizer->fail("the loss is nan");
  EXPECT_EQ(host->next().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(job_.left, 1);
}

TEST_F(ProgramHostTest, AVoidEvaluationIsToldWhileItGoesOn) {
  const auto host = hostOf(true);
  host->tellInterrupted();  // before there is anything
  declare(*host, 0);
  ASSERT_TRUE(host->next().ok());
  ASSERT_TRUE(step(*host, 0).ok());
  ASSERT_TRUE(host->next().ok());
  host->tellInterrupted();
  EXPECT_FALSE(memory_->interrupted());
  job_.synchronizer->beginEpoch(2, 1);
  host->tellInterrupted();
  EXPECT_TRUE(memory_->interrupted());
  host->evaluated({});
  ASSERT_TRUE(host->next().ok());
  EXPECT_FALSE(memory_->interrupted());
}

}  // namespace
}  // namespace trainyard::runtime
