// What a program has beside the weights: its state, and variables that are not trained.
#include "gmock/gmock.h"
#include "tests/runtime/program/program_host_fixture.h"

namespace trainyard::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(ProgramHostTest, AProgramWithoutStateIsNeverAsked) {
  const auto host = hostOf(true);
  declare(*host, 10);
  job_.keep_at = 1;
  ASSERT_TRUE(host->next(program_).ok());
  EXPECT_EQ(job_.hosted.state, nullptr);
  ASSERT_TRUE(step(*host, 4).ok());
  ASSERT_TRUE(host->next(program_).ok());
  EXPECT_TRUE(program_.saved.empty());
}

// As a ring asks for it, on its way to the next turn.
TEST_F(ProgramHostTest, StateIsWrittenAndReadByItsStep) {
  const auto host = hostOf(true);
  declare(*host, 10, withState());
  job_.in_next = [&] {
    ProgramState& state = *job_.hosted.state;
    EXPECT_TRUE(state.initial());
    for (const std::int64_t version : {5, 6, 7}) {
      program_.state = fmt::format("of {}", version);
      const auto write = job_.hosted.beside(version);
      ASSERT_TRUE(write.ok()) << write.status();
      EXPECT_FALSE(std::filesystem::exists(stateFile(version)));
      EXPECT_TRUE((*write)().ok());
    }
    EXPECT_EQ(*readFile(stateFile(7), 100), "of 7");
    EXPECT_FALSE(std::filesystem::exists(stateFile(5))) << "two are kept";
    ASSERT_TRUE(state.read(6).ok());
    ASSERT_TRUE(state.load(6).ok());
    EXPECT_EQ(program_.state, "of 6");
    EXPECT_FALSE(state.initial());
    const auto missing = state.read(5).status();
    EXPECT_TRUE(absl::IsNotFound(missing));
    EXPECT_THAT(std::string(missing.message()), HasSubstr(stateFile(5)));
  };
  ASSERT_TRUE(host->next(program_).ok());
  EXPECT_THAT(program_.saved, ElementsAre(5, 6, 7));
}

TEST_F(ProgramHostTest, AfterAStepTheStateIsNotThatOfTheBeginning) {
  const auto host = hostOf(true);
  declare(*host, 10, withState());
  ASSERT_TRUE(host->next(program_).ok());
  EXPECT_TRUE(job_.hosted.state->initial());
  ASSERT_TRUE(step(*host, 4).ok());
  EXPECT_FALSE(job_.hosted.state->initial());
}

// Who started the program tells how it ended.
TEST_F(ProgramHostTest, AProgramThatDiesAsItIsAskedDoesNotLeaveTheJobInItsPlace) {
  const auto host = hostOf(true);
  declare(*host, 10, withState());
  program_.failure = absl::UnavailableError("gone");
  job_.in_next = [&] {
    EXPECT_FALSE(job_.hosted.state->save(0).ok());
    job_.synchronizer->fail("what follows from it");
  };
  EXPECT_EQ(host->next(program_).status(), program_.failure);
  EXPECT_FALSE(host->end().has_value());
  EXPECT_EQ(job_.left, 0);
}

TEST_F(ProgramHostTest, OnServersTheChiefsStateIsKeptWithTheVersionOfACheckpoint) {
  workers_update_ = false;
  job_.keep_at = 1;
  const auto host = hostOf(true);
  declare(*host, 10, withState());
  for (int made = 0; made < 3; ++made) {
    auto turn = host->next(program_);
    ASSERT_TRUE(turn.ok()) << turn.status();
    if (turn->turn.kind == Turn::Kind::kEvaluate) {
      host->evaluated({});
      turn = host->next(program_);
    }
    program_.state = fmt::format("of {}", made + 1);
    ASSERT_TRUE(step(*host, 4).ok());
  }
  EXPECT_THAT(program_.saved, ElementsAre(1));
  EXPECT_EQ(*readFile(stateFile(1), 100), "of 1");
  // Of the last version, however the job ends, and of a checkpoint that was made meanwhile.
  job_.missed = {2};
  job_.synchronizer->end(Turn::Kind::kStopped);
  ASSERT_TRUE(host->next(program_).ok());
  EXPECT_THAT(program_.saved, ElementsAre(1, 2, 3));
  EXPECT_EQ(*readFile(stateFile(2), 100), "of 3");
  EXPECT_EQ(*readFile(stateFile(3), 100), "of 3");
}

// In modes in which the chief computes for a step that is not needed any more.
TEST_F(ProgramHostTest, OnServersTheEndsStateIsThatWhichWasScored) {
  workers_update_ = false;
  job_.keep_at = 1;
  for (const bool trains_on : {false, true}) {
    const auto host = hostOf(true);
    declare(*host, 10, withState());
    ASSERT_TRUE(host->next(program_).ok());
    program_.state = "of 1";
    ASSERT_TRUE(step(*host, 4).ok());
    ASSERT_TRUE(host->next(program_).ok());
    host->evaluated({});
    if (trains_on) {
      ASSERT_EQ(host->next(program_)->turn.kind, Turn::Kind::kTrain);
      program_.state = "of 1 and what came too late";
      job_.synchronizer->beTooLate();
      ASSERT_TRUE(step(*host, 4).ok());
    }
    job_.synchronizer->end(Turn::Kind::kDone);
    program_.saved.clear();
    ASSERT_TRUE(host->next(program_).ok());
    EXPECT_EQ(program_.saved.size(), trains_on ? 1u : 0u);
    EXPECT_EQ(*readFile(stateFile(1), 100), program_.state);
  }
}

TEST_F(ProgramHostTest, OnServersOthersThanTheChiefKeepNothing) {
  workers_update_ = false;
  const auto chief = hostOf(true);
  declare(*chief, 10, withState());
  ASSERT_TRUE(chief->next(program_).ok());
  job_.keep_at = 1;
  const auto host = hostOf(false);
  declare(*host, 10, withState());
  ASSERT_TRUE(host->next(program_).ok());
  ASSERT_TRUE(step(*host, 4).ok());
  ASSERT_TRUE(host->next(program_).ok());
  host->evaluated({});
  job_.synchronizer->end(Turn::Kind::kStopped);
  ASSERT_TRUE(host->next(program_).ok());
  EXPECT_TRUE(program_.saved.empty());
}

TEST_F(ProgramHostTest, OnServersAProgramBeginsWithTheNewestStateNotAfterItsStep) {
  workers_update_ = false;
  for (const int step : {4, 8, 12})
    ASSERT_TRUE(writeFileAtomically(stateFile(step), fmt::format("of {}", step)).ok());
  const auto host = hostOf(true);
  declare(*host, 10, withState());
  job_.in_next = [&] { job_.synchronizer->beginEpoch(2, 9); };
  ASSERT_TRUE(host->next(program_).ok());
  EXPECT_THAT(program_.loaded, ElementsAre(8));
  EXPECT_EQ(program_.state, "of 8");
  job_.in_next = [] {};
  host->evaluated({});
  ASSERT_TRUE(host->next(program_).ok());
  EXPECT_THAT(program_.loaded, ElementsAre(8)) << "once";
}

// "seen", which is not trained.
TEST_F(ProgramHostTest, WhatIsNotTrainedIsKeptAndPutBack) {
  workers_update_ = false;
  job_.keep_at = 1;
  {
    const auto host = hostOf(true);
    declare(*host, 10);
    ASSERT_TRUE(host->next(program_).ok());
    memory_->value(1)[0] = std::byte{42};
    ASSERT_TRUE(step(*host, 4).ok());
    ASSERT_TRUE(host->next(program_).ok());
    host->evaluated({});
  }
  EXPECT_TRUE(std::filesystem::exists(dir_.path() / "buffers.step-1.safetensors"));
  EXPECT_TRUE(program_.saved.empty());
  // At the beginning a program has its own.
  const auto fresh = hostOf(false);
  declare(*fresh, 10);
  ASSERT_TRUE(fresh->next(program_).ok());
  EXPECT_EQ(memory_->value(1)[0], std::byte{0});
  const auto later = hostOf(false);
  declare(*later, 10);
  job_.in_next = [&] { job_.synchronizer->beginEpoch(2, 3); };
  ASSERT_TRUE(later->next(program_).ok());
  EXPECT_EQ(memory_->value(1)[0], std::byte{42});
}

TEST_F(ProgramHostTest, InARingWhatIsNotTrainedGoesBesideTheCheckpoint) {
  const auto host = hostOf(true);
  declare(*host, 10);
  memory_->value(1)[0] = std::byte{42};
  ASSERT_TRUE(host->next(program_).ok());
  ASSERT_TRUE(job_.hosted.beside);
  EXPECT_EQ(job_.hosted.state, nullptr);
  const auto write = job_.hosted.beside(6);
  ASSERT_TRUE(write.ok()) << write.status();
  ASSERT_TRUE((*write)().ok());
  EXPECT_TRUE(std::filesystem::exists(dir_.path() / "buffers.step-6.safetensors"));
  EXPECT_TRUE(program_.saved.empty());
}

TEST_F(ProgramHostTest, AProgramThatGivesUpWhileItIsAskedEndsTheJob) {
  const auto host = hostOf(true);
  declare(*host, 0, withState());
  ASSERT_TRUE(host->next(program_).ok());
  ASSERT_TRUE(step(*host, 4).ok());
  program_.failure = absl::AbortedError("no state");
  job_.in_next = [&] { EXPECT_FALSE(job_.hosted.state->save(1).ok()); };
  EXPECT_EQ(host->next(program_).status(), program_.failure);
  job_.in_next = [] {};
  job_.synchronizer->fail("no state");
  host->abort("no state");
  EXPECT_EQ(job_.synchronizer->aborted, "0||no state");
  EXPECT_EQ(job_.left, 1);
}

}  // namespace
}  // namespace trainyard::runtime
