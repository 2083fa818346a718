#include "operator/progress/internal/silence.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard::control {

namespace {

using std::chrono::seconds;
using testing::IsEmpty;

const TaskKey kPs0{v1::ROLE_PS, 0};
const TaskKey kWorker0{v1::ROLE_WORKER, 0};
constexpr Duration kAfter = seconds(30);

class SilenceTest : public testing::Test {
 protected:
  // As of `second` seconds after the start; whether it is news.
  bool tell(int second, const std::vector<Silence>& silent, bool more = false) {
    return tellOfSilent(silent, more, TimePoint(seconds(second)), kAfter, told_);
  }
  static Silence of(const TaskKey& key, int since, const std::string& reason = "ConnectionFailed") {
    return {key, 1, TimePoint(seconds(since)), {reason, "words"}};
  }

  std::map<TaskKey, JobReport::Unreachable> told_;
};

TEST_F(SilenceTest, OneIsToldOfAfterItsTime) {
  EXPECT_FALSE(tell(29, {of(kPs0, 0)}));
  EXPECT_THAT(told_, IsEmpty());
  EXPECT_TRUE(tell(30, {of(kPs0, 0)}));
  EXPECT_EQ(told_.at(kPs0).why.reason, "ConnectionFailed");
  EXPECT_FALSE(tell(31, {of(kPs0, 0)})) << "that is known";
}

TEST_F(SilenceTest, ThoseWhoAreFoundOutSoonAfterAreToldOfTogether) {
  const std::vector<Silence> silent = {of(kPs0, 0), of(kWorker0, 7)};
  EXPECT_FALSE(tell(36, silent));
  EXPECT_TRUE(tell(37, silent));
  EXPECT_EQ(told_.size(), 2u);
}

TEST_F(SilenceTest, TheFirstWaitsForOthersAsLongAgainAtMost) {
  const std::vector<Silence> silent = {of(kPs0, 0), of(kWorker0, 40)};
  EXPECT_FALSE(tell(59, silent));
  EXPECT_TRUE(tell(60, silent));
  EXPECT_EQ(told_.size(), 1u);
  EXPECT_FALSE(tell(69, silent));
  EXPECT_TRUE(tell(70, silent)) << "somebody is told of: nobody waits any more";
}

TEST_F(SilenceTest, WhoHasNotBeenAskedYetIsWaitedForToo) {
  EXPECT_FALSE(tell(59, {of(kPs0, 0)}, /*more=*/true));
  EXPECT_TRUE(tell(60, {of(kPs0, 0)}, /*more=*/true));
}

TEST_F(SilenceTest, ALaterLifeIsNews) {
  EXPECT_TRUE(tell(30, {of(kPs0, 0)}));
  Silence later = of(kPs0, 40);
  later.created = 2;
  EXPECT_FALSE(tell(69, {later}));
  EXPECT_TRUE(tell(70, {later}));
  EXPECT_EQ(told_.at(kPs0).created, 2u);
}

TEST_F(SilenceTest, ARefusalSaysMoreThanSilence) {
  EXPECT_TRUE(tell(30, {of(kPs0, 0, "NoAnswer")}));
  EXPECT_TRUE(tell(31, {of(kPs0, 0, "ConnectionFailed")}));
  EXPECT_FALSE(tell(32, {of(kPs0, 0, "NoAnswer")}));
  EXPECT_EQ(told_.at(kPs0).why.reason, "ConnectionFailed");
}

}  // namespace

}  // namespace trainyard::control
