// Another number of steps while the job computes.
#include "tests/runtime/coordinator/bench.h"

namespace trainyard::runtime {
namespace {

using std::chrono::seconds;

struct RunningSteps : Bench {
  explicit RunningSteps(const std::function<void(CoordinatorConfig&)>& change = {})
      : Bench(1, 2, change) {
    activate();
    reach(10);
  }
  void wish(std::int64_t steps) {
    v1::Membership wanted = members(1, 2, ++revision);
    wanted.set_steps(steps);
    c.setMembership(wanted, now);
    take();
    settle();
  }
  std::int64_t epoch() const { return last_view.epoch().epoch(); }
  void finish(std::int64_t version) {
    evaluated(0, version, 1, epoch());
    evaluated(1, version, 1, epoch());
    write(version);
    commit();
    ASSERT_EQ(finishes.size(), 1u);
    EXPECT_EQ(finishes[0].steps, version);
    c.onFinishRecorded(absl::OkStatus(), now);
    settle();
    EXPECT_EQ(c.phase(), v1::PHASE_DONE);
    EXPECT_EQ(c.progress(now).steps(), version);
  }
  std::int64_t revision = 1;
};

TEST(CoordinatorLength, MoreStepsAreTakenOverBetweenTwoSteps) {
  RunningSteps b;
  b.rests = false;
  b.wish(200);
  EXPECT_TRUE(b.last_view.hold());
  EXPECT_EQ(b.epoch(), 1);
  b.worker(0).mutable_worker()->set_idle(true);
  b.worker(1).mutable_worker()->set_idle(true);
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  EXPECT_EQ(b.epoch(), 2);
  EXPECT_EQ(b.last_view.epoch().first_step(), 10);
  EXPECT_EQ(b.last_view.epoch().first_position(), 10 * 20);
  EXPECT_EQ(b.last_view.epoch().steps(), 200);
  EXPECT_EQ(b.last_view.steps(), 200);
  EXPECT_EQ(b.last_view.lost_steps(), 0);
  EXPECT_EQ(b.logged("epoch 1 ends: at step 10 the job's end moves from step 100 to 200"), 1);
  b.rests = true;
  b.reach(150);
  EXPECT_EQ(b.epoch(), 2) << "once is enough";
  b.reach(200);
  b.finish(200);
}

TEST(CoordinatorLength, FewerStepsEndTheJobEarlier) {
  RunningSteps b;
  b.wish(40);
  EXPECT_EQ(b.last_view.steps(), 40);
  EXPECT_EQ(b.last_view.epoch().first_step(), 10);
  b.reach(40);
  b.finish(40);
}

TEST(CoordinatorLength, StepsThatArePassedEndTheJobWhereItRests) {
  RunningSteps b;
  b.wish(3);
  EXPECT_EQ(b.epoch(), 2);
  EXPECT_EQ(b.last_view.steps(), 10);
  EXPECT_EQ(b.last_view.epoch().first_step(), 10);
  EXPECT_FALSE(b.last_view.hold());
  EXPECT_EQ(b.logged("the job's end moves from step 100 to 10"), 1);
  b.finish(10);
}

TEST(CoordinatorLength, AStepThatSomeServersHaveTakenIsTakenByAll) {
  for (const int backups : {0, 1}) {
    Bench b(2, 2, [&](CoordinatorConfig& c) { c.backup_workers = backups; });
    b.activate();
    b.reach(10);
    b.rests = false;
    v1::Membership wanted = members(2, 2, 2);
    wanted.set_steps(5);
    b.c.setMembership(wanted, b.now);
    Bench::setShard(b.ps(0), 10);
    Bench::setShard(b.ps(1), 11);
    b.restart(b.worker(0));
    b.settle();
    ASSERT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
    EXPECT_EQ(b.last_view.epoch().first_step(), 10);
    EXPECT_EQ(b.last_view.steps(), 11) << backups;
  }
}

TEST(CoordinatorLength, WorkersAndStepsChangeTogether) {
  RunningSteps b;
  v1::Membership wanted = members(1, 1, 2);
  wanted.set_steps(50);
  b.c.setMembership(wanted, b.now);
  b.settle();
  EXPECT_EQ(b.epoch(), 2);
  EXPECT_EQ(b.last_view.steps(), 50);
  EXPECT_EQ(b.last_view.epoch().members_size(), 2);
  EXPECT_EQ(b.logged("at step 10 the workers change from 2 to 1, the job's end moves from step "
                     "100 to 50"),
            1);
}

TEST(CoordinatorLength, DoesNotWaitForAWorkerThatIsToJoin) {
  RunningSteps b;
  v1::Membership wanted = members(1, 3, 2);
  wanted.set_steps(50);
  b.c.setMembership(wanted, b.now);
  b.settle();
  EXPECT_EQ(b.epoch(), 2);
  EXPECT_EQ(b.last_view.steps(), 50);
  EXPECT_EQ(b.last_view.epoch().members_size(), 3);
  EXPECT_EQ(b.logged("the workers change"), 0);
}

TEST(CoordinatorLength, TheSameNumberChangesNothing) {
  RunningSteps b;
  b.wish(100);
  EXPECT_EQ(b.epoch(), 1);
  EXPECT_FALSE(b.last_view.hold());
}

TEST(CoordinatorLength, AWishThatIsTakenBackChangesNothing) {
  RunningSteps b;
  b.rests = false;
  b.wish(50);
  EXPECT_TRUE(b.last_view.hold());
  b.wish(100);
  EXPECT_FALSE(b.last_view.hold());
  b.rests = true;
  b.reach(20);
  EXPECT_EQ(b.epoch(), 1);
}

TEST(CoordinatorLength, AfterTheLastStepItIsTooLate) {
  RunningSteps b;
  b.reach(100);
  b.wish(200);
  EXPECT_FALSE(b.last_view.hold());
  b.finish(100);
}

TEST(CoordinatorLength, AJobOfPassesKeepsItsLength) {
  RunningSteps b([](CoordinatorConfig& c) {
    c.steps = 0;
    c.passes = 1;
  });
  EXPECT_EQ(b.last_view.steps(), 50);
  b.wish(20);
  EXPECT_EQ(b.epoch(), 1);
  EXPECT_EQ(b.last_view.steps(), 50);
}

// A coordinator that starts again has the membership before the word of any worker.
TEST(CoordinatorLength, TheMembershipOutweighsTheSettingsAtTheStart) {
  CoordinatorConfig config = Bench::with({});
  v1::Membership membership = members(1, 2);
  membership.set_steps(70);
  const Coordinator c(config, membership, std::nullopt, TimePoint(std::chrono::hours(1)));
  EXPECT_EQ(c.progress(TimePoint(std::chrono::hours(1))).steps(), 70);
}

TEST(CoordinatorLength, AfterARollBackTheNewNumberStillHolds) {
  RunningSteps b;
  b.write(0);
  b.commit();
  b.wish(3);
  EXPECT_EQ(b.last_view.steps(), 10);
  b.restart(b.ps());
  b.settle();
  ASSERT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  EXPECT_EQ(b.last_view.epoch().first_step(), 0);
  EXPECT_EQ(b.last_view.steps(), 3);
}

TEST(CoordinatorLength, AsynchronousJobsFinishWhatIsUnderWay) {
  RunningSteps b([](CoordinatorConfig& c) { c.tickets = TicketRules{}; });
  const std::uint64_t lease = b.ask(0, false);
  ASSERT_EQ(b.answerOf(lease).code(), v1::TAKE_OK);
  const std::uint64_t ticket = b.ask(0, true);
  ASSERT_TRUE(b.answerOf(ticket).has_ticket());
  b.wish(3);
  EXPECT_TRUE(b.last_view.draining());
  EXPECT_EQ(b.epoch(), 1) << "a push is under way";
  b.finishPush(0);
  b.settle();
  EXPECT_EQ(b.epoch(), 2);
  EXPECT_EQ(b.last_view.steps(), 3);
  EXPECT_EQ(b.last_view.epoch().first_step(), 1);
}

}  // namespace
}  // namespace trainyard::runtime
