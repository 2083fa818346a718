#include "agent/supervisor/silence_watch.h"

#include "base/core/clock.h"
#include "gtest/gtest.h"

namespace trainyard::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class SilenceWatchTest : public testing::Test {
 protected:
  // Looks every 200 ms for that long; how often the watch spoke up.
  int look(std::uint64_t reports, Duration time) {
    int found = 0;
    for (const TimePoint end = clock_.now() + time; clock_.now() < end;) {
      clock_.advance(milliseconds(200));
      found += watch_.observe(reports, clock_.now());
    }
    return found;
  }

  FakeClock clock_;
  SilenceWatch watch_{seconds(15)};
};

TEST_F(SilenceWatchTest, SpeaksUpOnceTheLimitHasPassed) {
  EXPECT_EQ(look(1, seconds(14)), 0);
  EXPECT_EQ(look(1, seconds(2)), 1);
  EXPECT_EQ(look(1, seconds(10)), 0) << "again only after another limit";
  EXPECT_EQ(look(1, seconds(6)), 1);
}

TEST_F(SilenceWatchTest, EveryReportStartsAnew) {
  for (std::uint64_t reports = 1; reports < 10; ++reports) {
    EXPECT_EQ(look(reports, seconds(14)), 0) << reports;
  }
}

TEST_F(SilenceWatchTest, AProgramThatHasNotReportedYetMayTakeItsTime) {
  EXPECT_EQ(look(0, seconds(600)), 0);
  EXPECT_EQ(look(1, seconds(14)), 0);
  EXPECT_EQ(look(0, seconds(600)), 0) << "the next one has not reported yet";
}

TEST_F(SilenceWatchTest, WhileTheAgentDidNotRunItHeardNothing) {
  EXPECT_EQ(look(1, seconds(5)), 0);
  clock_.advance(seconds(3600));  // stopped, and continued together with its program
  EXPECT_EQ(look(1, seconds(5)), 0);
  EXPECT_EQ(look(1, seconds(6)), 1) << "which stays silent";
}

}  // namespace
}  // namespace trainyard::agent
