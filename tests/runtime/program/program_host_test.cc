// From what a program says to calls of a member.
#include "gmock/gmock.h"
#include "tests/runtime/program/program_host_fixture.h"

namespace trainyard::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(ProgramHostTest, TrainsWhatTheChiefsProgramDeclares) {
  const auto host = hostOf(true);
  declare(*host, 10);
  EXPECT_FALSE(job_.joined);
  const auto turn = host->next(program_);
  ASSERT_TRUE(turn.ok()) << turn.status();
  EXPECT_TRUE(job_.joined);
  EXPECT_EQ(job_.model->declaration, kHosted);
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

  const auto evaluation = host->next(program_);
  ASSERT_TRUE(evaluation.ok());
  EXPECT_EQ(evaluation->turn.kind, Turn::Kind::kEvaluate);
  EXPECT_EQ(std::pair(evaluation->turn.first_position, evaluation->turn.samples),
            std::pair(std::int64_t{0}, 5));
  host->evaluated({.hits = 3, .samples = 5, .loss_sum = 1});
  ASSERT_EQ(job_.synchronizer->scores.size(), 1U);
  EXPECT_EQ(job_.synchronizer->scores[0].hits, 3);

  job_.synchronizer->end(Turn::Kind::kDone);
  EXPECT_FALSE(host->end().has_value());
  const auto done = host->next(program_);
  ASSERT_TRUE(done.ok());
  EXPECT_EQ(done->turn.kind, Turn::Kind::kDone);
  EXPECT_EQ(job_.left, 1);
  EXPECT_TRUE(host->end()->ok());
}

TEST_F(ProgramHostTest, AProgramMakesTheNextVersionFromTheMeans) {
  const auto host = hostOf(true);
  declare(*host, 10, ownUpdate());
  ASSERT_TRUE(host->next(program_).ok());
  push(*host, 4);
  const auto summed = host->sum({.loss_sum = 6, .samples = 2});
  ASSERT_TRUE(summed.ok()) << summed.status();
  EXPECT_TRUE(summed->complete);
  EXPECT_EQ(summed->step, 0);
  EXPECT_EQ(summed->loss, 3);
  EXPECT_THAT(memory_->gradient(0), ElementsAre(2, 2));
  EXPECT_THAT(memory_->gradient(2), ElementsAre(2));
  EXPECT_THAT(floats(0), ElementsAre(10, 0));  // the program's to change
  EXPECT_TRUE(steps_.records.empty());
  floats(0)[0] = 7;
  const auto made = host->commit();
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_TRUE(made->complete);
  EXPECT_EQ(made->loss, 3);
  ASSERT_EQ(steps_.records.size(), 1U);
  EXPECT_EQ(steps_.records[0].step, 0);
  ASSERT_TRUE(host->next(program_).ok());
  EXPECT_THAT(floats(0), ElementsAre(7, 0));
}

TEST_F(ProgramHostTest, WhatAProgramCountsIsTheStepsAccuracy) {
  const auto host = hostOf(true);
  declare(*host, 10, ownUpdate());
  const auto take = [&](std::int64_t hits) {
    while (host->next(program_)->turn.kind == Turn::Kind::kEvaluate)
      host->evaluated({.hits = 3, .samples = 5, .loss_sum = 1});
    push(*host, 4);
    const auto summed = host->sum({.loss_sum = 6, .samples = 2, .hits = hits});
    return summed.ok() ? host->commit().status() : summed.status();
  };
  ASSERT_TRUE(take(1).ok() && take(-1).ok());
  ASSERT_EQ(steps_.records.size(), 2U);
  EXPECT_EQ(steps_.records[0].accuracy, 0.5);
  EXPECT_EQ(steps_.records[1].accuracy, std::nullopt);
  EXPECT_THAT(std::string(take(3).message()), HasSubstr("step 2: 3 hits of 2 samples"));
}

TEST_F(ProgramHostTest, AStepThatDoesNotCountLeavesTheProgramsGradients) {
  const auto host = hostOf(true);
  declare(*host, 10, ownUpdate());
  ASSERT_TRUE(host->next(program_).ok());
  push(*host, 4);
  job_.synchronizer->beginEpoch(2, 0);
  const auto summed = host->sum({.loss_sum = 6, .samples = 2});
  ASSERT_TRUE(summed.ok()) << summed.status();
  EXPECT_FALSE(summed->complete);
  EXPECT_THAT(memory_->gradient(0), ElementsAre(4, 4));
  const auto again = host->next(program_);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->turn.step, 0);
}

TEST_F(ProgramHostTest, ParameterServersLeaveNoUpdateToAProgram) {
  workers_update_ = false;
  const auto refused = hostOf(true)->declare(ownUpdate()).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("parameter servers make the update"));
  EXPECT_TRUE(
      absl::IsNotFound(readDeclaredModel(declaredModelPath(dir_.path().string())).status()));
}

// The next gradients are the program's to write although the last ones are still on their way.
TEST_F(ProgramHostTest, WhatIsHandedOverIsACopy) {
  const auto host = hostOf(true);
  declare(*host, 0);
  ASSERT_TRUE(host->next(program_).ok());
  memory_->gradient(0)[0] = 1;
  host->push(0);
  memory_->gradient(0)[0] = 99;
  memory_->gradient(2)[0] = 0;
  host->push(2);
  ASSERT_TRUE(host->finish({.loss_sum = 0, .samples = 2}).ok());
  EXPECT_EQ(floats(0)[0], -0.5F);
}

TEST_F(ProgramHostTest, WhereGradientsAreCopiedAnywayTheyAreNotCopiedBefore) {
  const auto host = hostOf(true);
  declare(*host, 0);
  ASSERT_TRUE(host->next(program_).ok());
  job_.synchronizer->copies = true;
  memory_->gradient(0)[0] = 1;
  host->push(0);
  memory_->gradient(0)[0] = 99;
  EXPECT_EQ(*job_.synchronizer->pushed_from.at(0), 99);
}

TEST_F(ProgramHostTest, TheFirstWeightsAreTheChiefs) {
  const auto chief = hostOf(true);
  declare(*chief, 10);
  ASSERT_TRUE(chief->next(program_).ok());
  const auto other = hostOf(false);
  declare(*other, 77);
  ASSERT_TRUE(other->next(program_).ok());
  EXPECT_THAT(job_.model->layout.values[1], ElementsAre(10, 0));
  // Also of a chief that is started again, whatever its program puts there.
  const auto again = hostOf(true);
  declare(*again, 55);
  ASSERT_TRUE(again->next(program_).ok());
  EXPECT_THAT(job_.model->layout.values[1], ElementsAre(10, 0));
}

TEST_F(ProgramHostTest, WhoeverDeclaresAnotherModelIsRefused) {
  const auto chief = hostOf(true);
  declare(*chief, 10);
  ASSERT_TRUE(chief->next(program_).ok());
  Declaration wider = kHosted;
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
  EXPECT_TRUE(absl::IsCancelled(host->next(program_).status()));
  EXPECT_FALSE(job_.joined);
}

TEST_F(ProgramHostTest, AStepThatIsNotWholeIsRefused) {
  const auto host = hostOf(true);
  declare(*host, 0);
  ASSERT_TRUE(host->next(program_).ok());
  for (const std::uint32_t variable : {2, 0}) host->push(variable);
  EXPECT_THAT(std::string(host->finish({.loss_sum = 0, .samples = 1}).status().message()),
              HasSubstr("step 0: 1 samples were computed, it has 2"));
}

// A gradient that is not finite ends the job, as it does with a model of ours.
TEST_F(ProgramHostTest, AGradientThatIsNotFiniteEndsTheJob) {
  const auto host = hostOf(true);
  declare(*host, 0);
  ASSERT_TRUE(host->next(program_).ok());
  ASSERT_TRUE(step(*host, std::numeric_limits<float>::infinity()).ok());
  EXPECT_EQ(job_.synchronizer->aborted, "0|b|the gradient is not finite");
}

TEST_F(ProgramHostTest, AProgramThatGivesUpEndsTheJobWithItsReason) {
  const auto host = hostOf(true);
  declare(*host, 0);
  ASSERT_TRUE(host->next(program_).ok());
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
  ASSERT_TRUE(host->next(program_).ok());
  ASSERT_TRUE(step(*host, 0).ok());
  job_.synchronizer->fail("the loss is nan");
  EXPECT_EQ(host->next(program_).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(job_.left, 1);
}

TEST_F(ProgramHostTest, AVoidEvaluationIsToldWhileItGoesOn) {
  const auto host = hostOf(true);
  host->tellInterrupted();  // before there is anything
  declare(*host, 0);
  ASSERT_TRUE(host->next(program_).ok());
  ASSERT_TRUE(step(*host, 0).ok());
  ASSERT_TRUE(host->next(program_).ok());
  host->tellInterrupted();
  EXPECT_FALSE(memory_->interrupted());
  job_.synchronizer->beginEpoch(2, 1);
  host->tellInterrupted();
  EXPECT_TRUE(memory_->interrupted());
  host->evaluated({});
  ASSERT_TRUE(host->next(program_).ok());
  EXPECT_FALSE(memory_->interrupted());
}

}  // namespace
}  // namespace trainyard::runtime
