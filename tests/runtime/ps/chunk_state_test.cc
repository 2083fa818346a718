#include "runtime/ps/chunk_state.h"

#include "gmock/gmock.h"
#include "tests/runtime/ps/helpers.h"

namespace trainyard::runtime::ps {
namespace {

using testing::ElementsAre;

class ChunkStateTest : public testing::Test {
 protected:
  void SetUp() override {
    plan_.elements = 2;
    state_.version = 1;
    state_.current = std::make_shared<Weights>(Weights{1, 1});
    state_.previous = std::make_shared<Weights>(Weights{7, 8});
    state_.resetStep(3);
  }
  void contribute(std::uint32_t rank, bool in_order = false) {
    const float value = static_cast<float>(rank + 1);
    state_.contribute(rank,
                      std::make_unique<LoggedPayload>(std::vector<float>{value, value * 10},
                                                      std::to_string(rank), &log_),
                      in_order);
  }

  Chunk plan_;
  StepChunk state_{plan_};
  std::vector<std::string> log_;
};

TEST_F(ChunkStateTest, TheFirstGradientIsCopiedAndTheRestAddedAsTheyArrive) {
  contribute(1);
  EXPECT_EQ(state_.missingRanks(), "0,2");
  contribute(2);
  EXPECT_FALSE(state_.complete());
  contribute(0);
  EXPECT_TRUE(state_.complete());
  EXPECT_EQ(state_.missingRanks(), "");
  EXPECT_THAT(log_, ElementsAre("copy 1", "add 2", "add 0"));
  EXPECT_THAT(*state_.sum, ElementsAre(6, 60));
}

TEST_F(ChunkStateTest, InRankOrderAGradientWaitsForThoseBeforeIt) {
  contribute(2, true);
  contribute(1, true);
  EXPECT_TRUE(log_.empty());
  EXPECT_FALSE(state_.complete());
  EXPECT_EQ(state_.missingRanks(), "0");
  contribute(0, true);
  EXPECT_TRUE(state_.complete());
  EXPECT_THAT(log_, ElementsAre("copy 0", "add 1", "add 2"));
}

TEST_F(ChunkStateTest, InRankOrderWhatHasItsTurnIsAddedAtOnce) {
  contribute(0, true);
  EXPECT_THAT(log_, ElementsAre("copy 0"));
  contribute(2, true);
  contribute(1, true);
  EXPECT_THAT(log_, ElementsAre("copy 0", "add 1", "add 2"));
}

TEST_F(ChunkStateTest, TheSumTakesTheMemoryOfTheOldestVersion) {
  const float* memory = state_.previous->data();
  contribute(0);
  EXPECT_EQ(state_.sum->data(), memory);
  EXPECT_EQ(state_.previous, nullptr);
}

TEST_F(ChunkStateTest, MemoryThatAnAnswerStillHoldsIsNotWritten) {
  const std::shared_ptr<const Weights> answer = state_.previous;
  contribute(0);
  contribute(1);
  EXPECT_NE(state_.sum->data(), answer->data());
  EXPECT_THAT(*answer, ElementsAre(7, 8));
  EXPECT_THAT(*state_.sum, ElementsAre(3, 30));
  EXPECT_EQ(state_.previous, nullptr);
}

// Nothing is added before all are there; then block by block, in the same order.
TEST_F(ChunkStateTest, WhatIsKeptIsSummedByBlocks) {
  StepChunk keeping(plan_, false);
  keeping.previous = std::make_shared<Weights>(Weights{7, 8});
  const float* memory = keeping.previous->data();
  keeping.resetStep(2);
  for (const std::uint32_t rank : {1U, 0U}) {
    const float value = static_cast<float>(rank + 1);
    keeping.contribute(rank,
                       std::make_unique<LoggedPayload>(std::vector<float>{value, value * 10},
                                                       std::to_string(rank), &log_),
                       false);
    EXPECT_TRUE(log_.empty());
    EXPECT_NE(keeping.previous, nullptr) << "it can still be read";
  }
  ASSERT_TRUE(keeping.complete());
  keeping.beginSum();
  EXPECT_EQ(keeping.sum->data(), memory);
  for (std::size_t at = 0; at < 2; ++at)
    keeping.sumBlock(std::span<float>(*keeping.sum).subspan(at, 1), at);
  keeping.endSum();
  EXPECT_THAT(log_, ElementsAre("copy 1", "add 0", "copy 1", "add 0"));
  EXPECT_THAT(*keeping.sum, ElementsAre(3, 30));
}

TEST_F(ChunkStateTest, ResetForgetsTheStepInProgress) {
  contribute(0);
  contribute(2, true);
  state_.samples = 5;
  state_.losses[0] = 3;
  state_.parked.push_back({1, 0, kStart});
  state_.resetStep(2);
  EXPECT_EQ(state_.sum, nullptr);
  EXPECT_EQ(state_.missingRanks(), "0,1");
  EXPECT_EQ(state_.samples, 0u);
  EXPECT_THAT(state_.losses, ElementsAre(0, 0));
  EXPECT_TRUE(state_.parked.empty());
}

}  // namespace
}  // namespace trainyard::runtime::ps
