#include "runtime/session/turn_order.h"

#include <gmock/gmock.h>

namespace trainyard::runtime::session {
namespace {

using testing::HasSubstr;

// Variables 0 and 2 are trained.
class TurnOrderTest : public ::testing::Test {
 protected:
  void declared() {
    ASSERT_TRUE(
        order_
            .declare(
                {.samples = 1,
                 .variables = {{"a", {1}}, {"b", {1}, ElementType::kFloat32, false}, {"c", {1}}},
                 .own_update = own_update_})
            .ok());
  }
  void begun(Turn::Kind kind, int samples = 1) {
    declared();
    turn(kind, samples);
  }
  void turn(Turn::Kind kind, int samples = 1) {
    ASSERT_TRUE(order_.next().ok());
    order_.begin({.kind = kind, .samples = samples});
  }
  void expectRefused(const Status& status, const char* why) {
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  }

  TurnOrder order_;
  bool own_update_ = false;
};

TEST_F(TurnOrderTest, AStepTakesEachTrainedVariableOnce) {
  begun(Turn::Kind::kTrain);
  expectRefused(order_.finish(), "variable 0 has no gradient");
  EXPECT_TRUE(order_.push(0).ok());
  expectRefused(order_.push(0), "was given already");
  expectRefused(order_.push(1), "variable 1 is not trained");
  expectRefused(order_.push(3), "variable 3 is not trained");
  expectRefused(order_.finish(), "variable 2 has no gradient");
  expectRefused(order_.next(), "the step must be finished");
  expectRefused(order_.evaluated(), "outside of a turn to evaluate");
  EXPECT_TRUE(order_.push(2).ok());
  EXPECT_TRUE(order_.finish().ok());
  expectRefused(order_.finish(), "outside of a turn to train");
  expectRefused(order_.push(0), "outside of a turn to train");
  turn(Turn::Kind::kTrain);
  EXPECT_TRUE(order_.push(0).ok());
}

TEST_F(TurnOrderTest, AStepOfTheProgramsOwnIsSummedAndCommitted) {
  own_update_ = true;
  begun(Turn::Kind::kTrain);
  expectRefused(order_.commit(), "no step is summed");
  EXPECT_TRUE(order_.push(0).ok());
  expectRefused(order_.sum(), "variable 2 has no gradient");
  EXPECT_TRUE(order_.push(2).ok());
  expectRefused(order_.finish(), "is to be summed and committed");
  EXPECT_TRUE(order_.sum().ok());
  order_.summed(true);
  expectRefused(order_.sum(), "outside of a turn to train");
  expectRefused(order_.push(0), "outside of a turn to train");
  expectRefused(order_.next(), "must be committed");
  EXPECT_TRUE(order_.commit().ok());
  expectRefused(order_.commit(), "no step is summed");
  turn(Turn::Kind::kTrain);
  EXPECT_TRUE(order_.push(0).ok());
}

TEST_F(TurnOrderTest, AStepThatIsNotTakenIsNotCommitted) {
  own_update_ = true;
  begun(Turn::Kind::kTrain, 0);
  EXPECT_TRUE(order_.sum().ok());
  order_.summed(false);
  expectRefused(order_.commit(), "no step is summed");
  turn(Turn::Kind::kTrain);
}

TEST_F(TurnOrderTest, WhereTheJobMakesTheUpdateNothingIsSummed) {
  begun(Turn::Kind::kTrain);
  EXPECT_TRUE(order_.push(0).ok());
  EXPECT_TRUE(order_.push(2).ok());
  expectRefused(order_.sum(), "is to be finished");
  EXPECT_TRUE(order_.finish().ok());
}

TEST_F(TurnOrderTest, AStepWithoutSamplesNeedsNoGradients) {
  begun(Turn::Kind::kTrain, 0);
  EXPECT_TRUE(order_.finish().ok());
  turn(Turn::Kind::kTrain);
  expectRefused(order_.finish(), "variable 0 has no gradient");
}

TEST_F(TurnOrderTest, AnEvaluationIsToldOnce) {
  begun(Turn::Kind::kEvaluate);
  expectRefused(order_.next(), "the evaluation must be told");
  expectRefused(order_.push(0), "outside of a turn to train");
  expectRefused(order_.finish(), "outside of a turn to train");
  EXPECT_TRUE(order_.evaluated().ok());
  expectRefused(order_.evaluated(), "outside of a turn to evaluate");
  EXPECT_TRUE(order_.next().ok());
}

TEST_F(TurnOrderTest, AStateIsSavedOnce) {
  begun(Turn::Kind::kSave);
  EXPECT_FALSE(order_.over());
  EXPECT_FALSE(order_.loading());
  expectRefused(order_.next(), "the state must be saved");
  expectRefused(order_.push(0), "outside of a turn to train");
  EXPECT_TRUE(order_.save().ok());
  expectRefused(order_.save(), "outside of a turn to save");
  turn(Turn::Kind::kTrain);
  expectRefused(order_.save(), "outside of a turn to save");
}

TEST_F(TurnOrderTest, AStateIsLoadedAsOftenAsWanted) {
  begun(Turn::Kind::kLoad);
  EXPECT_FALSE(order_.over());
  EXPECT_TRUE(order_.loading());
  expectRefused(order_.save(), "outside of a turn to save");
  turn(Turn::Kind::kTrain);
  EXPECT_FALSE(order_.loading());
}

TEST_F(TurnOrderTest, TheModelComesFirstAndOnce) {
  expectRefused(order_.next(), "must be declared first");
  expectRefused(order_.push(0), "outside of a turn to train");
  declared();
  expectRefused(order_.declare({.samples = 1, .variables = {{"a", {1}}}}), "declared already");
}

TEST_F(TurnOrderTest, NothingFollowsTheEnd) {
  begun(Turn::Kind::kStopped);
  EXPECT_TRUE(order_.over());
  expectRefused(order_.next(), "the job is over");
  expectRefused(order_.push(0), "outside of a turn to train");
}

TEST_F(TurnOrderTest, RowsBelongIntoTurns) {
  declared();
  expectRefused(order_.lookUp(), "outside of a turn to train or to evaluate");
  expectRefused(order_.pushRows(), "outside of a turn to train");
  turn(Turn::Kind::kEvaluate);
  EXPECT_TRUE(order_.lookUp().ok());
  expectRefused(order_.pushRows(), "outside of a turn to train");
  expectRefused(order_.lookAhead(), "outside of a turn to train");
  ASSERT_TRUE(order_.evaluated().ok());
  turn(Turn::Kind::kTrain);
  EXPECT_TRUE(order_.lookUp().ok() && order_.pushRows().ok() && order_.lookAhead().ok());
  ASSERT_TRUE(order_.push(0).ok() && order_.push(2).ok() && order_.finish().ok());
  expectRefused(order_.lookUp(), "outside of a turn to train or to evaluate");
  expectRefused(order_.lookAhead(), "outside of a turn to train");
}

TEST_F(TurnOrderTest, HitsAreOfATurnsSamples) {
  begun(Turn::Kind::kTrain, 3);
  EXPECT_TRUE(order_.countHits(0).ok() && order_.countHits(3).ok());
  expectRefused(order_.countHits(4), "4 hits of 3 samples");
  expectRefused(order_.countHits(-1), "-1 hits of 3 samples");
  ASSERT_TRUE(order_.push(0).ok() && order_.push(2).ok() && order_.finish().ok());
  expectRefused(order_.countHits(1), "outside of a turn to train");
  turn(Turn::Kind::kEvaluate);
  expectRefused(order_.countHits(1), "outside of a turn to train");
}

}  // namespace
}  // namespace trainyard::runtime::session
