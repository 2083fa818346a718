// Workers' questions for tickets, places and samples, and checkpoints between two updates.
#include "gmock/gmock.h"
#include "tests/runtime/coordinator/bench.h"

namespace trainyard::runtime {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;

std::function<void(CoordinatorConfig&)> asynchronous(const TicketRules& rules = {},
                                                     std::int64_t steps = 100) {
  return [=](CoordinatorConfig& c) {
    c.tickets = rules;
    c.steps = steps;
    c.checkpoint_every = seconds(2);
  };
}

std::function<void(CoordinatorConfig&)> backups(int workers) {
  return [=](CoordinatorConfig& c) { c.backup_workers = workers; };
}

// Ready, with the checkpoint of the fresh start behind it.
struct TakeBench : Bench {
  using Bench::Bench;
  void begin() {
    activate();
    write(last_view.epoch().first_step());
    if (!commits.empty()) commit();
  }
  v1::TakeReply asked(std::uint32_t index, bool ticket) { return answerOf(ask(index, ticket)); }
  v1::TakeReply askedForPlace(std::uint32_t index, std::int64_t step) {
    return answerOf(put(questionForPlace(index, step)));
  }
  void push(std::uint32_t index) {
    ASSERT_EQ(asked(index, false).code(), v1::TAKE_OK);
    ASSERT_EQ(asked(index, true).code(), v1::TAKE_OK);
    finishPush(index);
  }
  // All servers have copied what is to be a checkpoint.
  void copied(std::int64_t version) {
    for (auto& [key, r] : reports) {
      if (key.first == v1::ROLE_PS) r.mutable_shard()->set_captured_checkpoint(version);
    }
    settle();
  }
  // Everybody goes on being heard of.
  void pass(Duration time) {
    for (Duration gone{}; gone < time; gone += milliseconds(500)) {
      tick(milliseconds(500));
      settle();
    }
  }
};

TEST(CoordinatorTake, AnswersTicketsAndSamples) {
  TakeBench b(2, 2, asynchronous());
  b.begin();
  const v1::TakeReply lease = b.asked(1, false);
  EXPECT_EQ(lease.code(), v1::TAKE_OK);
  EXPECT_FALSE(lease.has_ticket());
  EXPECT_EQ(lease.lease().first(), 0);
  EXPECT_EQ(lease.lease().samples(), 10);
  EXPECT_EQ(lease.epoch(), b.last_view.epoch().epoch());
  EXPECT_FALSE(lease.waited());
  const v1::TakeReply ticket = b.asked(1, true);
  EXPECT_EQ(ticket.ticket(), 0);
  EXPECT_EQ(ticket.lease().first(), 10);
  b.finishPush(1);
  EXPECT_EQ(b.c.progress(b.now).step(), 1);
  EXPECT_EQ(b.asked(0, false).lease().first(), 20);
  EXPECT_EQ(b.asked(0, true).ticket(), 1);
}

TEST(CoordinatorTake, RefusesOtherEpochsJobsAndProcesses) {
  TakeBench b(1, 2, asynchronous());
  EXPECT_EQ(b.asked(0, false).code(), v1::TAKE_WRONG_EPOCH);  // not active yet
  b.begin();
  const v1::TakeRequest good = b.question(0, false);
  v1::TakeRequest q = good;
  q.set_epoch(good.epoch() - 1);
  EXPECT_EQ(b.answerOf(b.put(q)).code(), v1::TAKE_WRONG_EPOCH);
  EXPECT_EQ(b.answerOf(b.put(q)).epoch(), good.epoch());
  q = good;
  q.set_job_uid("another");
  EXPECT_EQ(b.answerOf(b.put(q)).code(), v1::TAKE_WRONG_EPOCH);
  q = good;
  *q.mutable_incarnation() = incarnation(1, 9);
  EXPECT_EQ(b.answerOf(b.put(q)).code(), v1::TAKE_WRONG_EPOCH);
  q = good;
  q.mutable_id()->set_index(7);
  EXPECT_EQ(b.answerOf(b.put(q)).code(), v1::TAKE_WRONG_EPOCH);
  EXPECT_EQ(b.answerOf(b.put(good)).code(), v1::TAKE_OK);
}

TEST(CoordinatorTake, InPlainSyncNobodyHasToAsk) {
  TakeBench b;
  b.activate();
  EXPECT_EQ(b.askedForPlace(0, 0).code(), v1::TAKE_WRONG_EPOCH);
}

TEST(CoordinatorTake, ARepeatedQuestionGetsTheSameAnswer) {
  TakeBench b(1, 2, asynchronous());
  b.begin();
  b.asked(0, false);
  const v1::TakeRequest q = b.question(0, true);
  const v1::TakeReply first = b.answerOf(b.put(q));
  const v1::TakeReply second = b.answerOf(b.put(q));
  EXPECT_EQ(first.ticket(), 0);
  EXPECT_EQ(second.SerializeAsString(), first.SerializeAsString());
  EXPECT_EQ(b.asked(1, false).lease().first(), 20);
  EXPECT_EQ(b.asked(1, true).ticket(), 1);  // none was lost
  // One that the newest has overtaken is of no use to anybody.
  v1::TakeRequest old = q;
  old.set_sequence(q.sequence() - 1);
  EXPECT_EQ(b.answerOf(b.put(old)).code(), v1::TAKE_WRONG_EPOCH);
}

TEST(CoordinatorTake, WhoHasToWaitIsAskedToComeAgainAfterAHeartbeat) {
  TakeBench b(1, 2, asynchronous({.max_delay = 1}));
  b.begin();
  b.push(0);
  const v1::TakeRequest q = b.question(0, false);
  const std::uint64_t first = b.put(q);
  EXPECT_EQ(b.answerOf(first).code(), v1::TAKE_UNSPECIFIED);
  b.tick(milliseconds(900));
  EXPECT_EQ(b.answerOf(first).code(), v1::TAKE_UNSPECIFIED);
  b.tick(milliseconds(200));
  EXPECT_EQ(b.answerOf(first).code(), v1::TAKE_AGAIN);
  const std::uint64_t again = b.put(q);
  EXPECT_EQ(b.answerOf(again).code(), v1::TAKE_UNSPECIFIED);
  // The slow one's ticket is what it waited for.
  b.asked(1, false);
  b.asked(1, true);
  EXPECT_EQ(b.answerOf(again).code(), v1::TAKE_OK);
  EXPECT_TRUE(b.answerOf(again).waited());
  EXPECT_TRUE(b.answerOf(again).has_lease());
  EXPECT_EQ(b.c.progress(b.now).spread(), 1);
}

TEST(CoordinatorTake, OfTwoCallsOfOneQuestionTheFirstIsGivenUp) {
  TakeBench b(1, 2, asynchronous({.max_delay = 1}));
  b.begin();
  b.push(0);
  const v1::TakeRequest q = b.question(0, false);
  const std::uint64_t first = b.put(q);
  const std::uint64_t second = b.put(q);
  EXPECT_EQ(b.answerOf(first).code(), v1::TAKE_AGAIN);
  EXPECT_EQ(b.answerOf(second).code(), v1::TAKE_UNSPECIFIED);
}

TEST(CoordinatorTake, ANewEpochAnswersAllWhoWait) {
  TakeBench b(1, 2, asynchronous({.max_delay = 1}));
  b.begin();
  b.push(0);
  const std::uint64_t call = b.ask(0, false);
  b.restart(b.worker(1));
  b.say(b.worker(1));
  EXPECT_EQ(b.answerOf(call).code(), v1::TAKE_WRONG_EPOCH);
}

TEST(CoordinatorTake, ACheckpointWaitsForPushesAndSaysWhatWasNotPushed) {
  TakeBench b(1, 2, asynchronous());
  b.begin();
  b.push(0);
  b.push(1);
  b.push(1);
  b.asked(0, true);  // under way
  b.pass(seconds(2));
  EXPECT_TRUE(b.last_view.draining());
  EXPECT_EQ(b.last_view.checkpoint_at(), -1);
  EXPECT_EQ(b.asked(1, true).code(), v1::TAKE_UNSPECIFIED);
  b.finishPush(0);
  b.settle();
  EXPECT_EQ(b.last_view.checkpoint_at(), 4);
  b.copied(4);
  EXPECT_FALSE(b.last_view.draining());
  // Training goes on before the files are written: that changes nothing of what they hold.
  const std::int64_t lent = 10 * 6;  // four pushed, one each in hand
  b.push(0);
  b.write(4);
  ASSERT_FALSE(b.commits.empty());
  const Manifest& manifest = b.commits.back();
  EXPECT_EQ(manifest.step, 4);
  EXPECT_EQ(manifest.position, lent);
  EXPECT_THAT(manifest.unread, ElementsAre(SampleRange{40, 10}, SampleRange{50, 10}));
}

TEST(CoordinatorTake, TheFirstCheckpointIsOfTheFreshStart) {
  TakeBench b(1, 2, asynchronous());
  b.activate();
  b.push(0);
  b.write(0);
  ASSERT_FALSE(b.commits.empty());
  EXPECT_EQ(b.commits.back().step, 0);
  EXPECT_EQ(b.commits.back().position, 0);
  EXPECT_TRUE(b.commits.back().unread.empty());
}

// Steps longer than the time between two checkpoints.
TEST(CoordinatorTake, WithoutANewPushThereIsNoCheckpointAndTrainingGoesOn) {
  TakeBench b(1, 2, asynchronous());
  b.begin();
  b.push(0);
  b.pass(seconds(2));
  ASSERT_EQ(b.last_view.checkpoint_at(), 1);
  b.copied(1);
  b.write(1);
  b.commit();
  b.pass(seconds(5));
  EXPECT_FALSE(b.last_view.draining());
  EXPECT_EQ(b.commits.back().step, 1);
  b.push(1);
  EXPECT_EQ(b.c.progress(b.now).step(), 2);
}

TEST(CoordinatorTake, AStopTakesACheckpointBetweenTwoPushes) {
  TakeBench b(1, 2, asynchronous({.aggregate = 3}));
  b.begin();
  for (int i = 0; i < 3; ++i) b.push(0);
  b.asked(1, false);
  b.asked(1, true);
  b.c.requestStop(b.now);
  b.settle();
  EXPECT_EQ(b.last_view.phase(), v1::PHASE_STOPPING);
  EXPECT_EQ(b.last_view.stop_at(), -1);  // one push is under way
  EXPECT_EQ(b.asked(0, true).code(), v1::TAKE_UNSPECIFIED);
  b.finishPush(1);
  b.settle();
  EXPECT_EQ(b.last_view.stop_at(), 2);  // of the second update there is one push of three
  b.write(2);
  b.commit();
  EXPECT_EQ(b.last_view.phase(), v1::PHASE_STOPPED);
  EXPECT_EQ(b.commits.back().step, 2);
}

TEST(CoordinatorTake, TheJobIsOverAfterItsPushesAScoreAndTheLastCheckpoint) {
  TakeBench b(1, 2, asynchronous({}, 2));
  b.begin();
  b.push(0);
  EXPECT_EQ(b.asked(1, false).code(), v1::TAKE_OK);
  EXPECT_EQ(b.asked(1, true).ticket(), 1);
  EXPECT_EQ(b.asked(0, true).code(), v1::TAKE_OVER);
  EXPECT_EQ(b.c.progress(b.now).step(), 1);
  b.finishPush(1);
  b.settle();
  EXPECT_EQ(b.last_view.progress(), 2);
  EXPECT_EQ(b.last_view.checkpoint_at(), 2);
  b.copied(2);
  b.write(2);
  b.commit();
  EXPECT_EQ(b.last_view.phase(), v1::PHASE_ACTIVE);
  b.evaluated(0, 2, 40, b.last_view.epoch().epoch());
  b.settle();
  ASSERT_EQ(b.finishes.size(), 1u);
  b.c.onFinishRecorded(absl::OkStatus(), b.now);
  b.take();
  b.settle();
  EXPECT_EQ(b.last_view.phase(), v1::PHASE_DONE);
  EXPECT_EQ(b.asked(0, true).code(), v1::TAKE_WRONG_EPOCH);
}

TEST(CoordinatorTake, AWorkerThatDiesInAPushIsCountedAndOthersGoOn) {
  TakeBench b(1, 2, asynchronous());
  b.begin();
  b.push(0);
  b.asked(0, true);
  b.restart(b.worker(0));
  b.activate();
  EXPECT_TRUE(b.last_view.epoch().restore_manifest().empty());
  EXPECT_EQ(b.last_view.epoch().first_step(), 2);
  EXPECT_EQ(b.c.progress(b.now).partial(), 1);
  EXPECT_EQ(b.c.progress(b.now).lost_steps(), 0);
  b.push(1);
  EXPECT_EQ(b.c.progress(b.now).step(), 3);
}

TEST(CoordinatorTake, ALostServerTakesAllBackToTheCheckpointAndItsSamples) {
  TakeBench b(1, 2, asynchronous());
  b.begin();
  b.push(0);
  b.push(1);
  b.asked(1, false);
  b.pass(seconds(2));
  b.copied(2);
  b.write(2);
  b.commit();
  b.push(0);
  b.push(1);
  b.restart(b.ps());
  b.activate();
  EXPECT_EQ(b.last_view.epoch().first_step(), 2);
  EXPECT_FALSE(b.last_view.epoch().restore_manifest().empty());
  EXPECT_EQ(b.c.progress(b.now).lost_steps(), 2);
  EXPECT_EQ(b.c.progress(b.now).partial(), 0);
  // Lent, but not pushed before the checkpoint: read first.
  const v1::TakeReply lease = b.asked(0, false);
  EXPECT_EQ(lease.lease().first(), b.commits.back().unread.at(0).first);
  EXPECT_EQ(b.asked(0, true).ticket(), 2);
}

TEST(CoordinatorBackups, PlacesGoToTheFirstAndTheLateAreCounted) {
  TakeBench b(1, 3, backups(1));
  b.activate();
  const v1::TakeReply first = b.askedForPlace(2, 0);
  EXPECT_TRUE(first.has_place());
  EXPECT_EQ(first.place(), 0u);
  EXPECT_FALSE(first.has_ticket());
  EXPECT_EQ(b.askedForPlace(0, 0).place(), 1u);
  const v1::TakeReply late = b.askedForPlace(1, 0);
  EXPECT_FALSE(late.has_place());
  EXPECT_EQ(late.code(), v1::TAKE_SKIP);
  EXPECT_EQ(late.newest(), 1);
  EXPECT_EQ(b.c.progress(b.now).skipped(), 1);
  EXPECT_TRUE(b.askedForPlace(1, 1).has_place());
}

TEST(CoordinatorBackups, AStopRestsAtTheStepThatLacksGradients) {
  TakeBench b(1, 3, backups(1));
  b.activate();
  b.askedForPlace(0, 0);
  b.askedForPlace(1, 0);
  b.askedForPlace(2, 0);  // too late
  b.askedForPlace(0, 1);
  b.c.requestStop(b.now);
  b.settle();
  EXPECT_EQ(b.askedForPlace(1, 1).code(), v1::TAKE_UNSPECIFIED);
  b.reach(1);
  EXPECT_EQ(b.last_view.stop_at(), 1);
}

}  // namespace
}  // namespace trainyard::runtime
