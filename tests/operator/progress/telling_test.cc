// What agents that end, or refuse, do with what they are told.
#include "gmock/gmock.h"
#include "tests/operator/progress/fake_agents.h"

namespace trainyard::control {
namespace {

using testing::HasSubstr;

class TellingTest : public GrpcProgressTest {
 protected:
  // What one round says on standard error.
  std::string warningsOfRound() {
    testing::internal::CaptureStderr();
    poll();
    return testing::internal::GetCapturedStderr();
  }
};

// Whoever stops cancels what is under way: no warning of an agent's that did nothing wrong.
TEST_F(TellingTest, AStopInTheMiddleOfAPushIsNotTheAgentsFailure) {
  worker_.holdPushes();
  progress_.follow(kJob, "uid", wish(3, false));
  testing::internal::CaptureStderr();
  progress_.start();
  EXPECT_TRUE(eventually([&] { return worker_.pushes() > 0; }));
  progress_.stop();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

// The process ends with its task while a membership is on its way: it is said elsewhere how.
TEST_F(TellingTest, AnAgentThatEndsBeforeItIsToldIsNoWarning) {
  worker_.refuse(1);
  progress_.follow(kJob, "uid", wish(3, false));
  EXPECT_EQ(warningsOfRound(), "");
  EXPECT_EQ(warningsOfRound(), "");
  EXPECT_EQ(worker_.pushed(), 3);
}

TEST_F(TellingTest, ACoordinatorThatEndsBeforeItIsStoppedIsNoWarning) {
  sayStep(ps_, 7);
  ps_.refuse(1);
  progress_.follow(kJob, "uid", wish(0, true));
  EXPECT_EQ(warningsOfRound(), "");
  EXPECT_EQ(ps_.stops(), 1);
}

TEST_F(TellingTest, WhoAnswersAndRefusesAgainIsWarnedOfOnce) {
  worker_.refuse(100);
  progress_.follow(kJob, "uid", wish(3, false));
  EXPECT_EQ(warningsOfRound(), "");
  EXPECT_THAT(warningsOfRound(), HasSubstr("PushMembership to worker-0"));
  EXPECT_EQ(warningsOfRound(), "");
  EXPECT_EQ(worker_.pushes(), 3);
}

// A process that was silent meanwhile is another, or may be.
TEST_F(TellingTest, SilenceEndsARowOfRefusals) {
  worker_.refuse(100);
  progress_.follow(kJob, "uid", wish(3, false));
  EXPECT_EQ(warningsOfRound(), "");
  worker_.change([](v1::TaskState* state) { state->set_created(2); });
  EXPECT_EQ(warningsOfRound(), "");
  worker_.change([](v1::TaskState* state) { state->set_created(1); });
  EXPECT_EQ(warningsOfRound(), "");
  EXPECT_EQ(worker_.pushes(), 2);
}

}  // namespace
}  // namespace trainyard::control
