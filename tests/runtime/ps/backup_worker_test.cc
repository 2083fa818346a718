// The synchronous worker with backup workers: a gradient leaves when it is complete and has a
// place.
#include "gmock/gmock.h"
#include "tests/runtime/ps/worker_bench.h"

namespace trainyard::runtime::ps {
namespace {

using StepState = WorkerMachine::StepState;

// Worker 0 of three, of which one is a backup.
struct BackupBench : WorkerBench {
  explicit BackupBench(const std::function<void(WorkerConfig&)>& change = {})
      : WorkerBench([&](WorkerConfig& c) {
          c.window = 8;
          if (change) change(c);
        }) {
    workers = 3;
    backup_workers = 1;
    steps = 100;
    see(v1::PHASE_ACTIVE, 1);
    serve();
  }
  // A gradient of the step at hand, all of it.
  v1::TakeRequest compute() {
    const auto t = turn();
    EXPECT_TRUE(t.has_value() && t->kind == Turn::Kind::kTrain);
    gradients();
    return question();
  }
  static v1::TakeReply skip(std::int64_t newest) {
    v1::TakeReply r = reply(v1::TAKE_SKIP);
    r.set_newest(newest);
    return r;
  }
};

TEST(BackupWorker, NothingLeavesBeforeTheGradientIsCompleteAndHasAPlace) {
  BackupBench b;
  ASSERT_TRUE(b.turn().has_value());
  for (std::uint32_t c = 0; c < 4; ++c) b.machine.gradientReady(c);
  EXPECT_TRUE(b.sends().empty());
  EXPECT_FALSE(b.asks());
  b.machine.lossReady({.loss_sum = 3});
  const v1::TakeRequest q = b.question();
  EXPECT_TRUE(q.with_gradient());
  EXPECT_EQ(q.step(), 0);
  EXPECT_TRUE(b.sends().empty());
  b.tell(q, b.place(1));
  const auto sends = b.sends();
  ASSERT_EQ(sends.size(), 4u);
  for (const Send& send : sends) {
    EXPECT_TRUE(send.with_payload);
    EXPECT_EQ(send.header.place(), 1u);
    EXPECT_EQ(send.header.rank(), 0u);
  }
  EXPECT_EQ(sends[3].header.loss_sum(), 3);
  for (const Send& send : sends) EXPECT_TRUE(b.answer(send));
  EXPECT_EQ(b.machine.stepState(), StepState::kComplete);
  EXPECT_FALSE(b.machine.endStep().too_late);
  EXPECT_EQ(b.machine.version(), 1);
}

TEST(BackupWorker, WhoComesTooLateGoesOnWithTheNewestVersion) {
  BackupBench b;
  const v1::TakeRequest q = b.compute();
  b.tell(q, b.skip(4));
  EXPECT_EQ(b.machine.stepState(), StepState::kAbandoned);
  EXPECT_TRUE(b.machine.endStep().too_late);
  const auto sends = b.sends();
  ASSERT_EQ(sends.size(), 4u);
  for (const Send& send : sends) {
    EXPECT_FALSE(send.with_payload);
    EXPECT_FALSE(send.header.pull_only());
    EXPECT_EQ(send.header.step(), 3);  // leads to version 4
    EXPECT_FALSE(send.header.has_place());
    EXPECT_EQ(send.header.samples(), 0u);
  }
  EXPECT_FALSE(b.turn().has_value());
  for (const Send& send : sends) EXPECT_TRUE(b.answer(send));
  EXPECT_EQ(b.machine.version(), 4);
  const auto turn = b.turn();
  ASSERT_TRUE(turn.has_value());
  EXPECT_EQ(turn->step, 4);
}

TEST(BackupWorker, WhoseVersionHasPassedLooksForANewerOne) {
  BackupBench b;
  b.tell(b.compute(), b.skip(2));
  b.machine.endStep();
  const auto sends = b.sends();
  for (const Send& send : sends) {
    EXPECT_FALSE(b.machine.onReply(send.chunk, send.attempt, absl::OkStatus(),
                                   b.refusal(v1::CHUNK_GONE), b.now));
  }
  const v1::TakeRequest q = b.question();
  EXPECT_FALSE(q.with_gradient());  // it has nothing to give
  EXPECT_EQ(q.step(), 1);
  b.tell(q, b.skip(9));
  b.serve();
  EXPECT_EQ(b.machine.version(), 9);
}

TEST(BackupWorker, WhoseRowsHavePassedGivesUpItsStep) {
  BackupBench b([](WorkerConfig& c) { c.ps_of_part = {0}; });
  ASSERT_TRUE(b.turn().has_value());
  const auto read = b.machine.readRows(0);
  ASSERT_TRUE(read.ok() && read->has_value()) << read.status();
  EXPECT_EQ((*read)->header.version(), 0);
  b.machine.onRowsGone();
  const v1::TakeRequest q = b.question();
  EXPECT_FALSE(q.with_gradient());
  b.tell(q, b.skip(4));
  EXPECT_TRUE(absl::IsCancelled(b.machine.readRows(0).status()));
  EXPECT_EQ(b.machine.stepState(), StepState::kAbandoned);
  EXPECT_TRUE(b.machine.endStep().too_late);
}

TEST(BackupWorker, AfterANewEpochAPlaceIsAskedForAnew) {
  BackupBench b;
  const v1::TakeRequest q = b.compute();
  b.tell(q, b.place(0));
  b.receiveAll();
  b.see(v1::PHASE_SEALING, 2);
  b.see(v1::PHASE_ACTIVE, 2, 0);
  EXPECT_TRUE(b.sends().empty());
  const v1::TakeRequest again = b.question();
  EXPECT_EQ(again.epoch(), 2);
  EXPECT_EQ(again.sequence(), 1);
  EXPECT_TRUE(again.with_gradient());
  b.tell(again, b.place(1));
  const auto sends = b.sends();
  ASSERT_EQ(sends.size(), 4u);
  EXPECT_EQ(sends[0].header.place(), 1u);
  for (const Send& send : sends) EXPECT_TRUE(b.answer(send));
  EXPECT_EQ(b.machine.stepState(), StepState::kComplete);
}

TEST(BackupWorker, WhoStandsByStandsByUnderTheNextEpochToo) {
  BackupBench b;
  b.tell(b.compute(), b.skip(1));
  b.machine.endStep();
  b.receiveAll();
  b.see(v1::PHASE_ACTIVE, 2, 0);  // the step lacks a gradient again: its worker died
  const auto sends = b.sends();
  ASSERT_EQ(sends.size(), 4u);
  EXPECT_FALSE(sends[0].with_payload);
  EXPECT_EQ(sends[0].header.step(), 0);
  for (const Send& send : sends) EXPECT_TRUE(b.answer(send));
  EXPECT_EQ(b.machine.version(), 1);
  EXPECT_TRUE(b.turn().has_value());
}

// The job's end moves to where the workers rest: the step in hand does not come any more.
TEST(BackupWorker, AGradientBehindTheJobsNewEndIsDropped) {
  for (const bool has_place : {false, true}) {
    BackupBench b([](WorkerConfig& c) { c.evaluates = true; });
    b.tell(b.compute(), b.skip(5));
    b.machine.endStep();
    b.serve();
    const v1::TakeRequest q = b.compute();
    if (has_place) b.tell(q, b.place(0));
    b.see(v1::PHASE_SEALING, 2);
    b.steps = 5;
    b.see(v1::PHASE_ACTIVE, 2, 5);
    EXPECT_EQ(b.machine.stepState(), StepState::kAbandoned);
    b.machine.endStep();
    for (const Send& send : b.sends()) {
      EXPECT_TRUE(send.header.pull_only());
      EXPECT_EQ(send.header.version(), 5);
      EXPECT_TRUE(b.answer(send));
    }
    EXPECT_EQ(b.machine.version(), 5);
    EXPECT_FALSE(b.asks());
    const auto turn = b.turn();
    ASSERT_TRUE(turn.has_value());
    EXPECT_EQ(turn->kind, Turn::Kind::kEvaluate);
    EXPECT_EQ(turn->ranks, 3) << "the last score is everybody's";
  }
}

TEST(BackupWorker, WhoStandsByForAStepBehindTheNewEndFetchesTheLastVersion) {
  BackupBench b;
  b.tell(b.compute(), b.skip(6));  // computes nothing, waits for version 6
  b.machine.endStep();
  b.receiveAll();
  b.see(v1::PHASE_SEALING, 2);
  b.steps = 5;
  b.see(v1::PHASE_ACTIVE, 2, 5);
  const auto sends = b.sends();
  ASSERT_EQ(sends.size(), 4u);
  EXPECT_TRUE(sends[0].header.pull_only());
  for (const Send& send : sends) EXPECT_TRUE(b.answer(send));
  EXPECT_EQ(b.machine.version(), 5);
  EXPECT_FALSE(b.asks());
}

TEST(BackupWorker, TheChiefAloneScoresWhatItHoldsBeforeTheLastStep) {
  BackupBench b([](WorkerConfig& c) { c.evaluate_every = 10; });
  b.tell(b.compute(), b.skip(13));
  b.machine.endStep();
  b.serve();
  const auto turn = b.turn();
  ASSERT_TRUE(turn.has_value());
  EXPECT_EQ(turn->kind, Turn::Kind::kEvaluate);
  EXPECT_EQ(turn->step, 13);
  EXPECT_EQ(turn->ranks, 1);
  b.machine.evaluated(5, 10, 1);
  EXPECT_EQ(b.turn()->kind, Turn::Kind::kTrain);
}

}  // namespace
}  // namespace trainyard::runtime::ps
