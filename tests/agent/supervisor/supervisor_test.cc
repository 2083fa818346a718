#include "agent/supervisor/supervisor.h"

#include <csignal>

#include "base/core/exit_code.h"
#include "fmt/format.h"
#include "gmock/gmock.h"

namespace trainyard::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string nameOf(const SupervisorAction& action) {
  if (const auto* start = std::get_if<StartChild>(&action))
    return fmt::format("start {}", start->start);
  if (const auto* signal = std::get_if<SignalChild>(&action)) {
    return fmt::format("signal {}", signal->signal);
  }
  if (const auto* exit = std::get_if<ExitAgent>(&action)) return fmt::format("exit {}", exit->code);
  return "publish";
}

// Feeds events and gives the actions as text.
class SupervisorTest : public testing::Test {
 protected:
  std::string feed(const SupervisorEvent& event) {
    std::string trace;
    for (const SupervisorAction& action : supervisor_.handle(event, clock_.now())) {
      trace += (trace.empty() ? "" : ", ") + nameOf(action);
    }
    return trace;
  }
  void startChild() {
    feed(MembershipReady{});
    feed(ChildStarted{{100}});
  }
  // Advances to the moment the supervisor asked for; returns how long that was.
  Duration toWake() {
    const Duration wait = supervisor_.wakeAt() - clock_.now();
    clock_.advance(wait);
    return wait;
  }
  // The back-off after the running child dies, then its next start.
  Duration dieAndRestart() {
    feed(ChildExited{{.code = 0, .signal = SIGKILL}});
    const Duration wait = toWake();
    feed(TimePassed{});
    feed(ChildStarted{{101}});
    return wait;
  }

  FakeClock clock_;
  Supervisor supervisor_{SupervisorOptions()};
};

TEST_F(SupervisorTest, StartsOnceTheMembershipIsReady) {
  EXPECT_TRUE(supervisor_.waiting());
  EXPECT_EQ(supervisor_.view().child, "Waiting");
  EXPECT_EQ(supervisor_.wakeAt(), TimePoint::max());
  EXPECT_EQ(feed(TimePassed{}), "");
  EXPECT_EQ(feed(MembershipReady{}), "start 1");
  EXPECT_EQ(feed(ChildStarted{{100}}), "publish");
  EXPECT_EQ(feed(MembershipReady{}), "") << "a later membership starts nothing";
  EXPECT_EQ(supervisor_.view().child, "Running");
  EXPECT_EQ(supervisor_.view().pids, std::vector<pid_t>{100});
  EXPECT_EQ(supervisor_.view().start, 1u);
}

TEST_F(SupervisorTest, EndsWithTheCodeThatNoRestartMends) {
  for (const int code : {kExitOk, kExitUsage, kExitBadInput, kExitDiverged, kExitTableFull}) {
    Supervisor fresh{SupervisorOptions()};
    fresh.handle(MembershipReady{}, clock_.now());
    fresh.handle(ChildStarted{{100}}, clock_.now());
    const auto actions = fresh.handle(ChildExited{{.code = code, .signal = 0}}, clock_.now());
    ASSERT_FALSE(actions.empty());
    EXPECT_EQ(nameOf(actions.back()), fmt::format("exit {}", code));
    EXPECT_TRUE(fresh.handle(TimePassed{}, clock_.now() + seconds(100)).empty());
  }
}

TEST(Supervisor, EveryCodeOfTheUsersOwnProgramIsFinalBelow128) {
  for (const auto& [code, last] : {std::pair{1, "exit 1"},
                                   {77, "exit 77"},
                                   {127, "exit 127"},
                                   {128, "publish"},
                                   {255, "publish"}}) {
    FakeClock clock;
    SupervisorOptions options;
    options.final_exits.foreign = true;
    Supervisor supervisor(options);
    supervisor.handle(MembershipReady{}, clock.now());
    supervisor.handle(ChildStarted{{100}}, clock.now());
    const auto actions = supervisor.handle(ChildExited{{.code = code, .signal = 0}}, clock.now());
    ASSERT_FALSE(actions.empty());
    EXPECT_EQ(nameOf(actions.back()), last) << code;
  }
}

TEST(Supervisor, EndsWithWhatTheJobHasRulesFor) {
  for (const auto& [exit, last] : {std::pair{ExitState{.code = 1, .signal = 0}, "exit 1"},
                                   {ExitState{.code = 0, .signal = 9}, "exit 137"},
                                   {ExitState{.code = 137, .signal = 0}, "exit 137"},
                                   {ExitState{.code = 0, .signal = 15}, "publish"}}) {
    FakeClock clock;
    SupervisorOptions options;
    options.final_exits.more = *ExitCodeSet::parse("1,137");
    Supervisor supervisor(options);
    supervisor.handle(MembershipReady{}, clock.now());
    supervisor.handle(ChildStarted{{100}}, clock.now());
    const auto actions = supervisor.handle(ChildExited{exit}, clock.now());
    ASSERT_FALSE(actions.empty());
    EXPECT_EQ(nameOf(actions.back()), last);
  }
}

TEST(Supervisor, WithoutRestartsEveryExitIsFinal) {
  for (const auto& [exit, code] : {std::pair{ExitState{.code = 1, .signal = 0}, 1},
                                   {ExitState{.code = 0, .signal = 9}, 137}}) {
    FakeClock clock;
    SupervisorOptions options;
    options.restarts = false;
    Supervisor supervisor(options);
    supervisor.handle(MembershipReady{}, clock.now());
    supervisor.handle(ChildStarted{{100}}, clock.now());
    const auto actions = supervisor.handle(ChildExited{exit}, clock.now());
    ASSERT_EQ(actions.size(), 2u);
    EXPECT_EQ(nameOf(actions[1]), fmt::format("exit {}", code));
  }
}

TEST_F(SupervisorTest, RestartsWithHigherStartAfterASignalOrAMendableCode) {
  startChild();
  EXPECT_EQ(feed(ChildExited{{.code = 0, .signal = SIGKILL}}), "publish");
  EXPECT_EQ(supervisor_.view().child, "Exited");
  EXPECT_EQ(supervisor_.view().pids, std::vector<pid_t>{});
  EXPECT_EQ(supervisor_.view().last_signal, SIGKILL);
  EXPECT_EQ(feed(TimePassed{}), "") << "not due yet";
  toWake();
  EXPECT_EQ(feed(TimePassed{}), "start 2");
  feed(ChildStarted{{101}});
  EXPECT_EQ(feed(ChildExited{{.code = kExitFailure, .signal = 0}}), "publish");
  EXPECT_EQ(supervisor_.view().last_exit_code, kExitFailure);
  EXPECT_EQ(supervisor_.view().last_signal, 0);
  toWake();
  EXPECT_EQ(feed(TimePassed{}), "start 3");
}

TEST_F(SupervisorTest, BacksOffLongerEachTimeUntilItRanLong) {
  startChild();
  std::vector<Duration> waits;
  for (int i = 0; i < 7; ++i) waits.push_back(dieAndRestart());
  EXPECT_THAT(waits,
              testing::ElementsAre(milliseconds(200), milliseconds(400), milliseconds(800),
                                   milliseconds(1600), milliseconds(3200), seconds(5), seconds(5)));
  clock_.advance(seconds(59));
  EXPECT_EQ(dieAndRestart(), seconds(5));
  clock_.advance(seconds(60));
  EXPECT_EQ(dieAndRestart(), milliseconds(200));
}

TEST_F(SupervisorTest, ASilentProgramIsKilledAndStartedAgain) {
  EXPECT_EQ(feed(ChildSilent{}), "") << "none runs";
  startChild();
  EXPECT_EQ(feed(ChildSilent{}), "signal 9");
  EXPECT_EQ(feed(ChildExited{{.code = 0, .signal = SIGKILL}}), "publish");
  EXPECT_EQ(feed(ChildSilent{}), "") << "ended already";
  EXPECT_EQ(toWake(), milliseconds(200));
  EXPECT_EQ(feed(TimePassed{}), "start 2");
  EXPECT_EQ(feed(ChildSilent{}), "") << "not started yet";
}

TEST_F(SupervisorTest, ForwardsAStopAndKillsAfterTheGrace) {
  startChild();
  EXPECT_EQ(feed(StopRequested{SIGTERM}), "signal 15");
  EXPECT_EQ(feed(TimePassed{}), "");
  EXPECT_EQ(toWake(), seconds(10));
  EXPECT_EQ(feed(TimePassed{}), "signal 9");
  EXPECT_EQ(feed(ChildExited{{.code = 0, .signal = SIGKILL}}), "publish, exit 143");
}

TEST_F(SupervisorTest, AStopEndsWithItsOwnCodeWhateverTheChildSays) {
  startChild();
  EXPECT_EQ(feed(StopRequested{SIGINT}), "signal 2");
  EXPECT_EQ(feed(StopRequested{SIGTERM}), "signal 15") << "a second request is passed on too";
  EXPECT_EQ(feed(ChildExited{{.code = 0, .signal = 0}}), "publish, exit 130");
}

TEST_F(SupervisorTest, StopsAtOnceWithoutAChild) {
  EXPECT_EQ(feed(StopRequested{SIGTERM}), "publish, exit 143");
  Supervisor backing_off{SupervisorOptions()};
  backing_off.handle(MembershipReady{}, clock_.now());
  backing_off.handle(ChildStarted{{1}}, clock_.now());
  backing_off.handle(ChildExited{{.code = 1, .signal = 0}}, clock_.now());
  const auto actions = backing_off.handle(LauncherGone{}, clock_.now());
  EXPECT_EQ(nameOf(actions.back()), fmt::format("exit {}", kExitLauncherGone));
}

TEST_F(SupervisorTest, ALostLauncherShortensTheGrace) {
  startChild();
  EXPECT_EQ(feed(StopRequested{SIGTERM}), "signal 15");
  EXPECT_EQ(feed(LauncherGone{}), "signal 15");
  EXPECT_EQ(toWake(), seconds(2));
  EXPECT_EQ(feed(TimePassed{}), "signal 9");
  EXPECT_EQ(feed(ChildExited{{.code = 0, .signal = SIGKILL}}), "publish, exit 143");
}

TEST_F(SupervisorTest, OurOwnRuntimeHearsOfOtherMembersByItself) {
  startChild();
  EXPECT_EQ(feed(MembersChanged{}), "");
}

TEST(Supervisor, OtherMembersStartTheProgramAgainAtOnceHoweverItEnds) {
  FakeClock clock;
  const auto handle = [&clock](Supervisor& supervisor, const SupervisorEvent& event) {
    std::string trace;
    for (const SupervisorAction& action : supervisor.handle(event, clock.now())) {
      trace += (trace.empty() ? "" : ", ") + nameOf(action);
    }
    return trace;
  };
  for (const ExitState& exit :
       {ExitState{.code = 0}, ExitState{.code = 1}, ExitState{.signal = 9}}) {
    Supervisor supervisor({.restarts = false,
                           .final_exits = {.foreign = true},
                           .on_change = SupervisorOptions::OnChange::kRestart});
    EXPECT_EQ(handle(supervisor, MembersChanged{}), "") << "it does not run";
    handle(supervisor, MembershipReady{});
    handle(supervisor, ChildStarted{{100}});
    EXPECT_EQ(handle(supervisor, MembersChanged{}), "signal 15");
    EXPECT_EQ(handle(supervisor, MembersChanged{}), "") << "it is told the newest when it starts";
    EXPECT_EQ(supervisor.wakeAt() - clock.now(), seconds(10));
    clock.advance(seconds(10));
    EXPECT_EQ(handle(supervisor, TimePassed{}), "signal 9");
    EXPECT_EQ(handle(supervisor, ChildExited{exit}), "start 2");
    handle(supervisor, ChildStarted{{101}});
    EXPECT_EQ(supervisor.view().planned_starts, 1u);
    EXPECT_EQ(handle(supervisor, ChildExited{{.code = 3}}), "publish, exit 3") << "by itself";
  }
}

TEST(Supervisor, AStopOutweighsANewStart) {
  FakeClock clock;
  Supervisor supervisor(
      {.final_exits = {.foreign = true}, .on_change = SupervisorOptions::OnChange::kRestart});
  supervisor.handle(MembershipReady{}, clock.now());
  supervisor.handle(ChildStarted{{100}}, clock.now());
  supervisor.handle(MembersChanged{}, clock.now());
  supervisor.handle(StopRequested{SIGTERM}, clock.now());
  const auto actions = supervisor.handle(ChildExited{{.code = 0}}, clock.now());
  EXPECT_EQ(nameOf(actions.back()), "exit 143");
}

TEST(Supervisor, AProgramThatAskedForItGetsASignalOfItsOwn) {
  FakeClock clock;
  Supervisor supervisor(
      {.final_exits = {.foreign = true}, .on_change = SupervisorOptions::OnChange::kSignal});
  supervisor.handle(MembershipReady{}, clock.now());
  supervisor.handle(ChildStarted{{100}}, clock.now());
  const auto actions = supervisor.handle(MembersChanged{}, clock.now());
  ASSERT_EQ(actions.size(), 1u);
  const auto& signal = std::get<SignalChild>(actions[0]);
  EXPECT_EQ(signal.signal, SIGHUP);
  EXPECT_FALSE(signal.group) << "what it started itself need not know of it";
  EXPECT_EQ(supervisor.wakeAt(), TimePoint::max());
}

TEST_F(SupervisorTest, AProgramThatCannotStartIsFinalUnlessTheReasonPasses) {
  feed(MembershipReady{});
  EXPECT_EQ(feed(StartFailed{absl::UnavailableError("no memory")}), "publish");
  toWake();
  EXPECT_EQ(feed(TimePassed{}), "start 2");
  EXPECT_EQ(feed(StartFailed{absl::NotFoundError("no program")}), "publish, exit 2");
}

}  // namespace
}  // namespace trainyard::agent
