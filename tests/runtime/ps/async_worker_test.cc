#include "runtime/ps/async_worker.h"

#include "gmock/gmock.h"
#include "tests/runtime/ps/worker_bench.h"

namespace trainyard::runtime::ps {
namespace {

using StepState = WorkerMachine::StepState;
using testing::ElementsAre;

std::vector<std::uint32_t> chunks(const std::vector<Send>& sends) {
  std::vector<std::uint32_t> ids;
  for (const Send& send : sends) ids.push_back(send.chunk);
  return ids;
}

void asynchronous(WorkerConfig& c) {
  c.asynchronous = true;
  c.window = 8;
}

struct AsyncBench : WorkerBenchOf<AsyncWorker> {
  explicit AsyncBench(const std::function<void(WorkerConfig&)>& change = asynchronous)
      : WorkerBenchOf(change) {
    steps = 100;
    see(v1::PHASE_ACTIVE, 1);
    serve();  // the weights
  }
  // Samples [first, first + 5) in hand and the turn handed out.
  void begin(std::int64_t first = 0) {
    tell(question(), lease(first));
    const auto t = turn();
    ASSERT_TRUE(t.has_value());
    ASSERT_EQ(t->kind, Turn::Kind::kTrain);
  }
  // Computes all, and is given a ticket.
  v1::TakeRequest take(std::int64_t number) {
    gradients();
    const v1::TakeRequest asked = question();
    EXPECT_TRUE(asked.ticket());
    tell(asked, ticket(number));
    return asked;
  }
  void push(std::int64_t number, std::int64_t first = 0) {
    begin(first);
    take(number);
    EXPECT_EQ(serve(), 4);
    ASSERT_EQ(machine.stepState(), StepState::kComplete);
    machine.endStep();
  }
};

TEST(AsyncWorker, PullsAsksForSamplesAndTrainsOnThem) {
  AsyncBench b;
  EXPECT_EQ(b.machine.version(), 0);
  EXPECT_FALSE(b.turn().has_value());
  const v1::TakeRequest q = b.question();
  EXPECT_TRUE(q.lease());
  EXPECT_FALSE(q.ticket());
  EXPECT_EQ(q.epoch(), 1);
  EXPECT_EQ(q.sequence(), 1);
  EXPECT_EQ(q.job_uid(), kJob);
  EXPECT_EQ(q.incarnation().start(), 3u);
  EXPECT_FALSE(b.asks());  // one at a time
  b.tell(q, b.lease(40, 7));
  const auto turn = b.turn();
  ASSERT_TRUE(turn.has_value());
  EXPECT_EQ(turn->kind, Turn::Kind::kTrain);
  EXPECT_EQ(turn->first_position, 40);
  EXPECT_EQ(turn->samples, 7);
  EXPECT_EQ(turn->step_samples, 7);
}

TEST(AsyncWorker, AsksForATicketWithTheFirstGradientAndSendsTheRestAsItComes) {
  AsyncBench b;
  b.begin();
  EXPECT_FALSE(b.asks());
  b.machine.gradientReady(3);
  b.machine.gradientReady(1);
  EXPECT_TRUE(b.sends().empty());
  const v1::TakeRequest q = b.question();
  EXPECT_TRUE(q.ticket());
  EXPECT_TRUE(q.lease());
  v1::TakeReply reply = b.ticket(6);
  *reply.mutable_lease() = b.lease(10).lease();
  b.tell(q, reply);
  auto sends = b.sends();
  ASSERT_THAT(chunks(sends), ElementsAre(1));  // the last waits for the loss
  EXPECT_TRUE(sends[0].with_payload);
  EXPECT_EQ(sends[0].header.ticket(), 6);
  EXPECT_EQ(sends[0].header.step(), 6);
  EXPECT_EQ(sends[0].header.samples(), 5u);
  EXPECT_TRUE(b.answer(sends[0]));  // answered while the rest is computed
  b.machine.gradientReady(0);
  EXPECT_THAT(chunks(b.sends()), ElementsAre(0));
  EXPECT_TRUE(b.report().worker().pushing());
  EXPECT_EQ(b.report().worker().ticket(), 6);
}

TEST(AsyncWorker, APushIsFinishedWhenAllServersHaveAnswered) {
  AsyncBench b;
  b.begin();
  b.take(3);
  const auto sends = b.receiveAll();
  ASSERT_EQ(sends.size(), 4u);
  EXPECT_EQ(sends[3].header.loss_sum(), 3);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(b.answer(sends[i]));
  EXPECT_EQ(b.report().worker().finished(), 0);
  EXPECT_EQ(b.machine.stepState(), StepState::kPending);
  EXPECT_TRUE(b.answer(sends[3]));
  EXPECT_EQ(b.machine.stepState(), StepState::kComplete);
  const auto end = b.machine.endStep();
  EXPECT_EQ(end.step, 3);
  EXPECT_DOUBLE_EQ(end.loss, 0.6);  // of its own five samples
  const v1::WorkerState state = b.report().worker();
  EXPECT_EQ(state.finished(), 1);
  EXPECT_FALSE(state.pushing());
  EXPECT_EQ(state.loss_step(), 3);
  EXPECT_EQ(b.machine.version(), 4);
  EXPECT_EQ(b.question().finished(), 1);
}

TEST(AsyncWorker, AggregatedPushesShareAStep) {
  AsyncBench b([](WorkerConfig& c) {
    asynchronous(c);
    c.aggregate = 4;
  });
  b.begin();
  b.take(6);
  const auto sends = b.sends();
  ASSERT_FALSE(sends.empty());
  EXPECT_EQ(sends[0].header.step(), 1);
  EXPECT_EQ(sends[0].header.ticket(), 6);
}

TEST(AsyncWorker, WhoWaitedForSamplesFetchesTheWeightsAnew) {
  AsyncBench b;
  const v1::TakeRequest q = b.question();
  b.tell(q, b.reply(v1::TAKE_AGAIN));
  const v1::TakeRequest again = b.question();
  EXPECT_EQ(again.sequence(), q.sequence());
  v1::TakeReply reply = b.lease(0);
  reply.set_waited(true);
  b.tell(again, reply);
  EXPECT_FALSE(b.turn().has_value());
  const auto sends = b.sends();
  ASSERT_EQ(sends.size(), 4u);
  EXPECT_TRUE(sends[0].header.pull_only());
  for (const Send& send : sends) EXPECT_TRUE(b.answer(send));
  EXPECT_TRUE(b.turn().has_value());
}

TEST(AsyncWorker, AGradientForWhichThereIsNoTicketIsDropped) {
  AsyncBench b;
  b.begin();
  b.gradients();
  b.tell(b.question(), b.reply(v1::TAKE_OVER));
  EXPECT_EQ(b.machine.stepState(), StepState::kAbandoned);
  b.machine.endStep();
  EXPECT_TRUE(b.sends().empty());
  EXPECT_FALSE(b.asks());
  EXPECT_FALSE(b.turn().has_value());
}

TEST(AsyncWorker, APushGoesOnUnderAnEpochThatKeepsTheServersState) {
  AsyncBench b;
  b.push(0);
  b.begin(5);
  b.take(4);
  const auto sent = b.receiveAll();
  EXPECT_TRUE(b.answer(sent[0]));
  b.see(v1::PHASE_SEALING, 2);
  EXPECT_TRUE(b.report().worker().pushing());
  EXPECT_EQ(b.report().worker().ticket(), 4);
  b.see(v1::PHASE_ACTIVE, 2, 3);
  EXPECT_FALSE(b.answer(sent[1]));  // of the epoch before
  const auto again = b.sends();
  ASSERT_THAT(chunks(again), ElementsAre(1, 2, 3));
  EXPECT_EQ(again[0].header.ticket(), 4);
  EXPECT_EQ(again[0].header.epoch(), 2);
  for (const Send& send : again) EXPECT_TRUE(b.answer(send));
  EXPECT_EQ(b.machine.stepState(), StepState::kComplete);
  b.machine.endStep();
  // It was not given a ticket under this epoch, so none is finished.
  EXPECT_EQ(b.report().worker().finished(), 0);
  EXPECT_EQ(b.report().worker().epoch(), 2);
  b.push(5, 10);
  EXPECT_EQ(b.report().worker().finished(), 1);
}

// For a coordinator that starts again.
TEST(AsyncWorker, SaysWhichSamplesAreInItsHands) {
  AsyncBench b;
  EXPECT_FALSE(b.report().worker().has_lease());
  b.tell(b.question(), b.lease(40));
  EXPECT_EQ(b.report().worker().lease().first(), 40) << "before it computes";
  ASSERT_TRUE(b.turn().has_value());
  EXPECT_EQ(b.report().worker().lease().first(), 40) << "while it computes";
  b.gradients();
  v1::TakeReply reply = b.ticket(6);
  *reply.mutable_lease() = b.lease(50).lease();
  b.tell(b.question(), reply);
  EXPECT_EQ(b.report().worker().pushing_lease().first(), 40);
  EXPECT_EQ(b.report().worker().pushing_lease().samples(), 5);
  EXPECT_EQ(b.report().worker().lease().first(), 50) << "the next";
  const auto sends = b.receiveAll();
  ASSERT_FALSE(sends.empty());
  EXPECT_EQ(sends[0].header.first(), 40);
  for (const Send& send : sends) b.answer(send);
  EXPECT_FALSE(b.report().worker().has_pushing_lease());
}

// It has missed the epoch in which the servers went back to a checkpoint.
TEST(AsyncWorker, WhatItHoldsOfAnotherHistoryIsDropped) {
  AsyncBench b;
  b.begin();
  b.take(4);
  b.see(v1::PHASE_SEALING, 2);
  EXPECT_TRUE(b.report().worker().pushing());
  v1::View kept = b.view(v1::PHASE_ACTIVE, 3, 0);
  kept.mutable_epoch()->set_lineage(2);
  b.see(kept);
  EXPECT_FALSE(b.report().worker().pushing());
  EXPECT_EQ(b.machine.stepState(), StepState::kAbandoned);
}

TEST(AsyncWorker, ComputingGoesOnUnderTheNextEpochAndAsksForATicketThere) {
  AsyncBench b;
  b.begin();
  b.machine.gradientReady(0);
  const v1::TakeRequest old = b.question();
  b.see(v1::PHASE_SEALING, 2);
  // Its report says that it holds no ticket: this one is given to somebody else.
  b.tell(old, b.ticket(7));
  EXPECT_FALSE(b.report().worker().pushing());
  b.see(v1::PHASE_ACTIVE, 2, 3);
  const v1::TakeRequest q = b.question();
  EXPECT_TRUE(q.ticket());
  EXPECT_EQ(q.epoch(), 2);
  EXPECT_EQ(q.sequence(), 1);
  b.tell(q, b.ticket(8));
  for (std::uint32_t c = 1; c < 4; ++c) b.machine.gradientReady(c);
  b.machine.lossReady({.loss_sum = 1});
  for (const Send& send : b.sends()) EXPECT_EQ(send.header.ticket(), 8);
}

TEST(AsyncWorker, ARestoredEpochForgetsWhatIsInHand) {
  AsyncBench b;
  b.begin();
  b.take(4);
  b.receiveAll();
  v1::View v = b.view(v1::PHASE_ACTIVE, 2, 1);
  v.mutable_epoch()->set_restore_manifest("step-1.e1.json");
  b.see(v);
  EXPECT_EQ(b.machine.stepState(), StepState::kAbandoned);
  EXPECT_FALSE(b.report().worker().pushing());
  b.machine.endStep();
  const auto sends = b.sends();
  ASSERT_EQ(sends.size(), 4u);
  EXPECT_TRUE(sends[0].header.pull_only());
  for (const Send& send : sends) EXPECT_TRUE(b.answer(send));
  b.push(1, 20);
}

TEST(AsyncWorker, AStopLetsAPushFinishAndTakesNoNewOne) {
  AsyncBench b;
  b.begin();
  b.take(0);
  b.see(v1::PHASE_STOPPING, 1);
  EXPECT_EQ(b.serve(), 4);
  EXPECT_EQ(b.machine.stepState(), StepState::kComplete);
  b.machine.endStep();
  EXPECT_EQ(b.report().worker().finished(), 1);
  EXPECT_TRUE(b.machine.takeUrgent());
  EXPECT_FALSE(b.asks());
  EXPECT_FALSE(b.turn().has_value());
}

TEST(AsyncWorker, WhatIsComputedWhenTheJobStopsIsDroppedAtItsEnd) {
  AsyncBench b;
  b.begin();
  b.see(v1::PHASE_STOPPING, 1);
  b.gradients();
  EXPECT_FALSE(b.asks());
  EXPECT_EQ(b.machine.stepState(), StepState::kPending);
  b.see(v1::PHASE_STOPPED, 1);
  EXPECT_EQ(b.machine.stepState(), StepState::kAbandoned);
  b.machine.endStep();
  EXPECT_TRUE(b.report().leaving());
  EXPECT_EQ(b.turn()->kind, Turn::Kind::kStopped);
}

TEST(AsyncWorker, SaysAtOnceWhenAPushIsFinishedWhileOthersWaitForIt) {
  AsyncBench b;
  b.begin();
  b.take(0);
  b.draining = true;
  b.see(v1::PHASE_ACTIVE, 1);
  b.machine.takeUrgent();
  b.serve();
  EXPECT_TRUE(b.machine.takeUrgent());
}

TEST(AsyncWorker, TheChiefScoresBetweenPushesAndSaysSo) {
  AsyncBench b([](WorkerConfig& c) {
    asynchronous(c);
    c.index = 0;
    c.evaluate_every = 10;
  });
  b.push(8);
  EXPECT_EQ(b.machine.version(), 9);
  b.push(10, 5);
  EXPECT_EQ(b.machine.version(), 11);
  EXPECT_FALSE(b.asks());  // samples in hand would hold others back
  const auto turn = b.turn();
  ASSERT_TRUE(turn.has_value());
  EXPECT_EQ(turn->kind, Turn::Kind::kEvaluate);
  EXPECT_EQ(turn->step, 11);
  EXPECT_EQ(turn->ranks, 1);  // the whole set
  EXPECT_TRUE(b.report().worker().evaluating());
  b.machine.evaluated(7, 10, 2.5);
  const v1::WorkerState state = b.report().worker();
  EXPECT_FALSE(state.evaluating());
  ASSERT_EQ(state.evaluations_size(), 1);
  EXPECT_EQ(state.evaluations(0).version(), 11);
  EXPECT_TRUE(b.asks());
}

TEST(AsyncWorker, TheChiefScoresTheFinalVersionOnWeightsThatItFetches) {
  AsyncBench b;
  b.steps = 5;
  b.see(v1::PHASE_ACTIVE, 2);
  b.serve();
  b.push(2);
  b.begin(5);
  b.gradients();
  b.tell(b.question(), b.reply(v1::TAKE_OVER));
  b.machine.endStep();
  EXPECT_FALSE(b.turn().has_value());
  b.progress = 5;
  b.see(v1::PHASE_ACTIVE, 2);
  const auto sends = b.sends();
  ASSERT_EQ(sends.size(), 4u);
  EXPECT_TRUE(sends[0].header.pull_only());
  for (const Send& send : sends) EXPECT_TRUE(b.answer(send));
  EXPECT_EQ(b.machine.version(), 5);
  const auto turn = b.turn();
  ASSERT_TRUE(turn.has_value());
  EXPECT_EQ(turn->kind, Turn::Kind::kEvaluate);
  EXPECT_EQ(turn->step, 5);
  b.machine.evaluated(7, 10, 2.5);
  EXPECT_FALSE(b.turn().has_value());
  // The coordinator has died before it recorded the end.
  b.see(v1::PHASE_SEALING, 3);
  b.see(v1::PHASE_ACTIVE, 3, 5);
  const auto again = b.turn();
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->kind, Turn::Kind::kEvaluate);
}

// A push with an earlier ticket may come after it.
TEST(AsyncWorker, TheChiefScoresWeightsThatItFetchesThoughItsOwnPushHadTheLastTicket) {
  AsyncBench b;
  b.steps = 5;
  b.see(v1::PHASE_ACTIVE, 2);
  b.serve();
  b.push(4);
  b.progress = 4;
  b.see(v1::PHASE_ACTIVE, 2);
  EXPECT_FALSE(b.turn().has_value());
  b.progress = 5;
  b.see(v1::PHASE_ACTIVE, 2);
  EXPECT_EQ(b.serve(), 4);
  const auto turn = b.turn();
  ASSERT_TRUE(turn.has_value());
  EXPECT_EQ(turn->kind, Turn::Kind::kEvaluate);
  EXPECT_EQ(turn->step, 5);
}

TEST(AsyncWorker, AFailedCallAndAnOldEpochAreAskedAgainLater) {
  AsyncBench b;
  const v1::TakeRequest q = b.question();
  b.machine.onTake(q, absl::UnavailableError("gone"), {}, b.now);
  EXPECT_FALSE(b.asks());
  ASSERT_TRUE(b.machine.wakeAt().has_value());
  b.now = *b.machine.wakeAt();
  const v1::TakeRequest again = b.question();
  EXPECT_EQ(again.sequence(), q.sequence());
  b.tell(again, b.reply(v1::TAKE_WRONG_EPOCH));
  EXPECT_FALSE(b.asks());
  b.now += std::chrono::seconds(1);
  EXPECT_TRUE(b.asks());
}

TEST(AsyncWorker, AfterAnAbortThePushDoesNotBecomeComplete) {
  AsyncBench b;
  b.begin();
  b.machine.gradientReady(0);
  b.machine.abort(0, "w", "the gradient is not finite");
  EXPECT_FALSE(b.asks());
  b.gradients();
  EXPECT_EQ(b.machine.stepState(), StepState::kPending);
  EXPECT_TRUE(b.report().has_abort());
}

}  // namespace
}  // namespace trainyard::runtime::ps
