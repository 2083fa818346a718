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
                 .variables = {{"a", {1}}, {"b", {1}, ElementType::kFloat32, false}, {"c", {1}}}})
            .ok());
  }
  void begun(Turn::Kind kind) {
    declared();
    ASSERT_TRUE(order_.next().ok());
    order_.begin(kind);
  }
  void expectRefused(const Status& status, const char* why) {
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  }

  TurnOrder order_;
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
  EXPECT_TRUE(order_.next().ok());
  order_.begin(Turn::Kind::kTrain);
  EXPECT_TRUE(order_.push(0).ok());
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

}  // namespace
}  // namespace trainyard::runtime::session
