// Workers that join and leave while the job computes.
#include "tests/runtime/coordinator/bench.h"

namespace trainyard::runtime {
namespace {

using std::chrono::seconds;

// A job with a step behind it that nobody disturbs.
struct Running : Bench {
  explicit Running(int workers = 2, const std::function<void(CoordinatorConfig&)>& change = {})
      : Bench(1, workers, change) {
    activate();
    reach(10);
  }
  void scale(int workers, std::int64_t revision) { rescale(1, workers, revision); }
  void arrive(int workers, std::int64_t revision) {
    Bench fresh(1, workers);
    for (const auto& [key, r] : fresh.reports) {
      if (reports.try_emplace(key, r).second) reports[key].set_revision(revision);
    }
  }
  void leave(std::uint32_t index) { reports.erase({v1::ROLE_WORKER, index}); }
  int ranks() const { return last_view.epoch().members_size() - 1; }
};

TEST(CoordinatorChange, NobodyWaitsForAWorkerThatIsToJoin) {
  Running b;
  b.scale(4, 2);
  b.expectNobodyIsWaitedFor(14);
}

// A job that is launched again with more workers: some of its processes know the new record later.
TEST(CoordinatorChange, WhoIsNamedBeforeTheFirstEpochIsWaitedFor) {
  Bench b(1, 2);
  b.c.setMembership(members(1, 3, 2), b.now);
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_SEALING);
  EXPECT_EQ(b.c.waitingFor(b.now), "worker-2");
  b.join(1, 3);
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  EXPECT_EQ(b.last_view.epoch().members_size(), 4);
}

TEST(CoordinatorChange, TheStepsGoOnUntilAllAreThere) {
  Running b;
  b.scale(4, 2);
  b.arrive(3, 2);
  b.settle();
  b.reach(13);
  EXPECT_EQ(b.epoch(), 1) << "worker-3 is missing";
  EXPECT_FALSE(b.last_view.hold());
  b.arrive(4, 2);
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  EXPECT_EQ(b.epoch(), 2);
  EXPECT_EQ(b.ranks(), 4);
  EXPECT_EQ(b.last_view.epoch().first_step(), 13);
  EXPECT_EQ(b.last_view.epoch().first_position(), 13 * 20);
  EXPECT_EQ(b.last_view.epoch().step_samples(), 40);
  EXPECT_EQ(b.last_view.epoch().first_step_samples(), 0);
  EXPECT_EQ(b.last_view.lost_steps(), 0);
  EXPECT_EQ(b.logged("epoch 1 ends: at step 13 the workers change from 2 to 4"), 1);
}

TEST(CoordinatorChange, TheEpochEndsWhereAllRest) {
  Running b;
  b.rests = false;
  b.scale(3, 2);
  b.arrive(3, 2);
  b.settle();
  EXPECT_TRUE(b.last_view.hold());
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE) << "both are in step 10";
  b.worker(0).mutable_worker()->set_version(11);
  b.worker(0).mutable_worker()->set_idle(true);
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE) << "worker-1 has not got step 10's answers yet";
  b.worker(1).mutable_worker()->set_version(11);
  Bench::setShard(b.ps(), 11);
  b.settle();
  EXPECT_EQ(b.epoch(), 2);
  EXPECT_EQ(b.last_view.epoch().first_step(), 11);
}

TEST(CoordinatorChange, WhoLeavesEndsTheStepAndIsToldThen) {
  Running b(3);
  b.rests = false;
  b.scale(1, 2);
  b.settle();
  EXPECT_TRUE(b.last_view.hold());
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_FALSE(b.worker(i).leaving()) << i;
    b.worker(i).mutable_worker()->set_idle(true);
  }
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  EXPECT_FALSE(b.worker(0).leaving());
  EXPECT_TRUE(b.worker(1).leaving());
  EXPECT_TRUE(b.worker(2).leaving());
  const auto view = b.reply(b.send(b.worker(2)));
  ASSERT_TRUE(view.has_value()) << "a call of one that has left is not held back";
  EXPECT_TRUE(view->left());
  EXPECT_EQ(view->refusal(), "");
  b.leave(1);
  b.leave(2);
  b.reach(12);
  EXPECT_EQ(b.ranks(), 1);
  EXPECT_EQ(b.epoch(), 2);
}

TEST(CoordinatorChange, AStrangerIsRefusedAndSentAway) {
  Running b;
  Bench other(1, 3);
  const auto view = b.reply(b.send(other.worker(2)));
  ASSERT_TRUE(view.has_value());
  EXPECT_FALSE(view->left());
  EXPECT_EQ(view->refusal(), "worker-2 is not in membership revision 1");
}

TEST(CoordinatorChange, WhoKnowsAnOlderMembershipHasLeft) {
  Running b;
  b.scale(1, 3);
  b.settle();
  Bench other(1, 4);  // of revision 1
  const auto view = b.reply(b.send(other.worker(3)));
  ASSERT_TRUE(view.has_value());
  EXPECT_TRUE(view->left());
}

TEST(CoordinatorChange, WhoKnowsANewerMembershipIsAskedAgain) {
  Running b;
  b.scale(1, 2);
  b.settle();
  b.leave(1);
  b.arrive(2, 3);  // the next life of worker-1, of a revision that is not known here
  const auto view = b.reply(b.send(b.worker(1)));
  ASSERT_TRUE(view.has_value());
  EXPECT_FALSE(view->left());
  EXPECT_EQ(view->refusal(), "");
  b.scale(2, 3);
  b.settle();
  EXPECT_EQ(b.ranks(), 2);
  EXPECT_EQ(b.epoch(), 3);
}

TEST(CoordinatorChange, AJoinerThatDiesHoldsNobodyUp) {
  Running b;
  b.scale(4, 2);
  b.arrive(3, 2);
  b.settle();
  const v1::MemberReport kept = b.worker(2);
  b.leave(2);
  for (int i = 0; i < 7; ++i) {
    b.tick(seconds(1));
    b.settle();
  }
  b.arrive(4, 2);
  b.leave(2);
  b.settle();
  EXPECT_EQ(b.epoch(), 1) << "worker-2 is missing again";
  EXPECT_FALSE(b.last_view.hold());
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  b.worker(2) = kept;
  b.restart(b.worker(2));
  b.settle();
  EXPECT_EQ(b.epoch(), 2);
  EXPECT_EQ(b.ranks(), 4);
}

TEST(CoordinatorChange, ADeathEndsTheEpochWithThoseThatAreThere) {
  Running b;
  b.scale(4, 2);
  b.arrive(3, 2);
  b.settle();
  b.restart(b.worker(1));
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  EXPECT_EQ(b.ranks(), 3) << "worker-3 is not waited for";
  b.arrive(4, 2);
  b.settle();
  EXPECT_EQ(b.ranks(), 4);
}

// What travels with every epoch grows with the changes of a job, not with its faults.
TEST(CoordinatorChange, DeathsAddNothingToTheStreamsHistory) {
  Running b;
  for (int death = 1; death <= 20; ++death) {
    b.restart(b.worker(1));
    b.settle();
    ASSERT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
    b.reach(10 + death);
  }
  EXPECT_EQ(b.epoch(), 21);
  ASSERT_EQ(b.last_view.epoch().past_size(), 1);
  EXPECT_EQ(b.last_view.epoch().past(0).first_step(), 0);
  b.scale(3, 2);
  b.arrive(3, 2);
  b.settle();
  ASSERT_EQ(b.last_view.epoch().past_size(), 2);
  EXPECT_EQ(b.last_view.epoch().past(1).first_step(), 30);
  EXPECT_EQ(b.last_view.epoch().past(1).first_position(), 30 * 20);
}

TEST(CoordinatorChange, ALeaverThatDiesIsNotWaitedFor) {
  Running b(3);
  b.rests = false;
  b.scale(2, 2);
  b.settle();
  b.restart(b.worker(2));
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  EXPECT_EQ(b.ranks(), 2);
  EXPECT_TRUE(b.worker(2).leaving());
}

// It was to leave by the membership that is known here, and belongs by one that is not.
TEST(CoordinatorChange, ALeaverThatANewerMembershipBringsBackHasNotLeft) {
  Running b(3);
  b.rests = false;
  b.scale(2, 2);
  b.settle();
  b.restart(b.worker(2));
  b.worker(2).set_revision(3);
  const auto view = b.reply(b.send(b.worker(2)));
  ASSERT_TRUE(view.has_value());
  EXPECT_FALSE(view->left());
  EXPECT_EQ(view->refusal(), "");
  b.scale(3, 3);
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  EXPECT_EQ(b.ranks(), 3);
  EXPECT_FALSE(b.worker(2).leaving());
}

// A worker that was lost and finds no room, and comes when there is some: ranks have no gaps.
TEST(CoordinatorChange, WhoDoesNotComeBackIsLeftOutUntilThereIsRoom) {
  Running b(3);
  b.leave(1);
  b.tick(seconds(6));
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_SEALING);
  EXPECT_EQ(b.c.waitingFor(b.now), "worker-1");

  v1::Membership fewer = members(1, 3, 2);
  fewer.mutable_tasks()->DeleteSubrange(2, 1);
  b.c.setMembership(fewer, b.now);
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  EXPECT_EQ(b.ranks(), 2);
  EXPECT_EQ(b.last_view.epoch().members(2).id().index(), 2);
  EXPECT_EQ(b.last_view.epoch().members(2).rank(), 1);
  EXPECT_EQ(b.last_view.epoch().first_step(), 10);
  EXPECT_EQ(b.last_view.epoch().step_samples(), 20);
  b.reach(13);

  b.c.setMembership(members(1, 3, 3), b.now);
  b.settle();
  b.reach(15);
  EXPECT_EQ(b.ranks(), 2) << "nobody waits for it";
  b.arrive(3, 3);
  *b.worker(1).mutable_incarnation() = incarnation(2, 1);
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  EXPECT_EQ(b.ranks(), 3);
  EXPECT_EQ(b.last_view.epoch().first_step(), 15);
  EXPECT_EQ(b.last_view.lost_steps(), 0);
}

// What one server has taken of step 10 came from 30 samples: so must what the other takes.
TEST(CoordinatorChange, AStepThatIsTakenInPartIsOfTheSameSamples) {
  Running b(3, [](CoordinatorConfig& c) {
    c.steps = 0;
    c.passes = 1;
  });
  EXPECT_EQ(b.last_view.steps(), 34);  // 33 of 30 and one of 10 samples
  b.rests = false;
  b.scale(1, 2);
  b.settle();
  Bench::setShard(b.ps(), 10, 11);
  b.leave(2);
  b.tick(seconds(6));
  b.settle();
  ASSERT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  const v1::EpochInfo& epoch = b.last_view.epoch();
  EXPECT_EQ(epoch.first_step(), 10);
  EXPECT_EQ(epoch.first_position(), 300);
  EXPECT_EQ(epoch.first_step_samples(), 30);
  EXPECT_EQ(epoch.step_samples(), 10);
  EXPECT_EQ(b.last_view.steps(), 11 + 67);
  b.leave(1);
  b.reach(20);
  b.write(20);
  // The next epoch counts on from there, and a manifest tells how it came about.
  b.restart(b.worker(0));
  b.settle();
  EXPECT_EQ(b.last_view.epoch().first_position(), 330 + 9 * 10);
  b.reach(78);
  b.write(78);
  ASSERT_FALSE(b.commits.empty());
  const std::vector<EpochRecord>& epochs = b.commits.back().epochs;
  ASSERT_EQ(epochs.size(), 3u);
  EXPECT_EQ(epochs[1].first_step, 10);
  EXPECT_EQ(epochs[1].step_samples, 30);
  EXPECT_EQ(epochs[1].ranks, 1);
  EXPECT_EQ(epochs[2].first_step, 11);
  EXPECT_EQ(epochs[2].first_position, 330);
  EXPECT_EQ(epochs[2].step_samples, 10);
}

TEST(CoordinatorChange, NobodyJoinsWithinAStep) {
  Running b;
  b.rests = false;
  b.scale(4, 2);
  b.arrive(4, 2);
  b.settle();
  Bench::setShard(b.ps(), 10, 11);
  b.restart(b.worker(1));
  b.settle();
  ASSERT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  EXPECT_EQ(b.ranks(), 2);
  EXPECT_EQ(b.last_view.epoch().first_step_samples(), 20);
  b.rests = true;
  b.worker(0).mutable_worker()->set_idle(true);
  b.worker(1).mutable_worker()->set_idle(true);
  b.reach(11);
  b.settle();
  EXPECT_EQ(b.ranks(), 4);
  EXPECT_EQ(b.last_view.epoch().first_step(), 11);
}

TEST(CoordinatorChange, ANewWishReplacesOneThatIsNotFulfilledYet) {
  Running b;
  b.scale(4, 2);
  b.arrive(3, 2);
  b.settle();
  EXPECT_EQ(b.epoch(), 1);
  b.scale(1, 3);
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  EXPECT_EQ(b.ranks(), 1);
  EXPECT_EQ(b.epoch(), 2);
  EXPECT_TRUE(b.worker(1).leaving());
  EXPECT_TRUE(b.worker(2).leaving()) << "it never took part";
  b.arrive(4, 2);  // worker-3 comes late, with the membership of before
  b.settle();
  EXPECT_TRUE(b.worker(3).leaving());
}

TEST(CoordinatorChange, AWishThatIsTakenBackChangesNothing) {
  Running b;
  b.rests = false;
  b.scale(1, 2);
  b.settle();
  EXPECT_TRUE(b.last_view.hold());
  b.scale(2, 3);
  b.settle();
  EXPECT_FALSE(b.last_view.hold());
  b.rests = true;
  b.reach(12);
  EXPECT_EQ(b.epoch(), 1);
  EXPECT_FALSE(b.worker(1).leaving());
}

// A word from before the hold says nothing of where a worker rests.
TEST(CoordinatorChange, AnOldWordOfRestDoesNotCount) {
  Running b;
  b.rests = false;
  b.scale(1, 2);
  b.settle();
  b.worker(0).mutable_worker()->set_idle(true);
  b.worker(1).mutable_worker()->set_version(9);  // late
  b.settle();
  b.scale(2, 3);
  const v1::MemberReport stale = b.worker(0);
  b.scale(1, 4);
  b.send(stale);
  b.worker(1).mutable_worker()->set_version(10);
  b.say(b.worker(1));
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE) << "worker-0 may be in step 10";
  b.settle();
  b.settle();
  EXPECT_EQ(b.epoch(), 2);
}

// Two copies of a server's state at a time would need the memory of both.
TEST(CoordinatorChange, AFreshStartsCheckpointIsWrittenBeforeAnotherIsAskedFor) {
  for (const char* error : {"", "the disk is full"}) {
    Running b(2, [](CoordinatorConfig& c) { c.checkpoint_every = seconds(1); });
    const auto goOn = [&](std::int64_t version) {
      b.now += seconds(1);
      b.reach(version);
      b.settle();
    };
    goOn(20);
    goOn(30);
    EXPECT_EQ(b.last_view.checkpoint_at(), -1);
    b.write(0, error);
    if (std::string(error).empty()) b.commit();
    EXPECT_GT(b.last_view.checkpoint_at(), 30) << error;
  }
}

TEST(CoordinatorChange, ACheckpointIsLetEndFirst) {
  Running b(2, [](CoordinatorConfig& c) { c.checkpoint_every = seconds(1); });
  b.write(0);
  b.commit();
  b.now += seconds(1);
  b.reach(20);
  b.now += seconds(1);
  b.settle();
  const std::int64_t version = b.last_view.checkpoint_at();
  ASSERT_GT(version, 20);
  b.scale(1, 2);
  b.settle();
  EXPECT_FALSE(b.last_view.hold());
  b.reach(version);
  b.write(version);
  EXPECT_FALSE(b.last_view.hold());
  b.commit();
  EXPECT_EQ(b.epoch(), 2);
  EXPECT_EQ(b.ranks(), 1);
  EXPECT_EQ(b.last_view.last_checkpoint(), version);
}

TEST(CoordinatorChange, TheEndIsNotPutOff) {
  Running b;
  b.reach(100);
  b.scale(1, 2);
  b.settle();
  EXPECT_FALSE(b.last_view.hold());
  EXPECT_EQ(b.epoch(), 1);
  b.evaluated(0, 100, 1, 1);
  b.evaluated(1, 100, 1, 1);
  b.write(100);
  b.commit();
  ASSERT_EQ(b.finishes.size(), 1u);
  b.c.onFinishRecorded(absl::OkStatus(), b.now);
  b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_DONE);
  EXPECT_TRUE(b.c.finished(b.now));
}

TEST(CoordinatorChange, ASuspensionComesFirst) {
  Running b;
  b.scale(3, 2);
  b.arrive(3, 2);
  b.rests = false;
  b.settle();
  ASSERT_TRUE(b.last_view.hold());
  b.c.requestStop(b.now);
  b.take();
  EXPECT_EQ(b.c.phase(), v1::PHASE_STOPPING);
  for (std::uint32_t i = 0; i < 2; ++i) b.worker(i).mutable_worker()->set_idle(true);
  b.settle();
  EXPECT_EQ(b.last_view.stop_at(), 10);
  b.write(10);
  b.commit();
  EXPECT_EQ(b.c.phase(), v1::PHASE_STOPPED);
  b.settle();
  EXPECT_TRUE(b.worker(2).leaving());
}

TEST(CoordinatorChange, AJoinerWithOtherDataIsRefusedAndTheJobGoesOn) {
  Running b;
  b.scale(3, 2);
  b.arrive(3, 2);
  b.worker(2).mutable_data()->set_samples(999);
  const auto view = b.reply(b.send(b.worker(2)));
  ASSERT_TRUE(view.has_value());
  EXPECT_NE(view->refusal().find("worker-2 has other data than worker-0"), std::string::npos);
  b.leave(2);
  b.tick(seconds(7));
  for (int i = 0; i < 3; ++i) b.settle();
  EXPECT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
}

}  // namespace
}  // namespace trainyard::runtime
