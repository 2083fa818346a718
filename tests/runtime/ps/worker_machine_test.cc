#include "gmock/gmock.h"
#include "tests/runtime/ps/worker_bench.h"

namespace trainyard::runtime::ps {
namespace {

using StepState = WorkerMachine::StepState;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::uint32_t> chunksOf(const std::vector<Send>& sends) {
  std::vector<std::uint32_t> ids;
  for (const Send& send : sends) ids.push_back(send.chunk);
  return ids;
}

TEST(WorkerMachine, WaitsUntilTheEpochIsActiveThenPullsAndTrains) {
  WorkerBench b;
  EXPECT_FALSE(b.turn().has_value());
  b.see(v1::PHASE_SEALING, 1);
  EXPECT_EQ(b.report().sealed_epoch(), 1);
  b.see(v1::PHASE_PREPARING, 1, 3);
  EXPECT_TRUE(b.sends().empty());
  EXPECT_FALSE(b.turn().has_value());
  b.first_position = 100;
  b.see(v1::PHASE_ACTIVE, 1, 2);
  const auto sends = b.sends();
  ASSERT_THAT(chunksOf(sends), ElementsAre(0, 3));
  const v1::ChunkRequestHeader& h = sends[1].header;
  EXPECT_TRUE(h.pull_only());
  EXPECT_FALSE(sends[1].with_payload);
  EXPECT_EQ(sends[1].ps, 1);
  EXPECT_EQ(h.version(), 2);
  EXPECT_EQ(h.epoch(), 1);
  EXPECT_EQ(h.job_uid(), kJob);
  EXPECT_EQ(h.server().start(), 11u);
  EXPECT_EQ(h.worker_incarnation().start(), 3u);
  EXPECT_FALSE(b.turn().has_value());
  for (const Send& send : sends) EXPECT_TRUE(b.answer(send));
  EXPECT_EQ(b.serve(), 2);
  EXPECT_EQ(b.machine.version(), 2);
  const auto turn = b.turn();
  ASSERT_TRUE(turn.has_value());
  EXPECT_EQ(turn->kind, Turn::Kind::kTrain);
  EXPECT_EQ(turn->step, 2);
  EXPECT_EQ(turn->epoch, 1);
  EXPECT_EQ(turn->ranks, 2);
  EXPECT_EQ(turn->samples, 2);
  EXPECT_EQ(turn->first_position, 100);
  EXPECT_FALSE(b.turn().has_value());  // handed out once
}

TEST(WorkerMachine, AWindowOfOneSendsTheNextAsSoonAsTheServerHasReceived) {
  WorkerBench b;
  b.see(v1::PHASE_ACTIVE, 1);
  b.serve();
  b.turn();
  b.gradients();
  auto sends = b.sends();
  ASSERT_THAT(chunksOf(sends), ElementsAre(0, 3));
  EXPECT_TRUE(sends[0].header.receipt());   // ps-0 holds three chunks
  EXPECT_FALSE(sends[1].header.receipt());  // ps-1 one: it fits the window
  EXPECT_TRUE(b.sends().empty());
  b.machine.onReceived(0, sends[0].attempt);
  EXPECT_THAT(chunksOf(b.sends()), ElementsAre(1));
  b.machine.onReceived(0, sends[0].attempt);  // said twice, counted once
  EXPECT_TRUE(b.sends().empty());
}

TEST(WorkerMachine, AWindowUntilTheAnswerKeepsWorkersAbreast) {
  WorkerBench b([](WorkerConfig& c) { c.window_until_answer = true; });
  b.see(v1::PHASE_ACTIVE, 1);
  b.serve();
  b.turn();
  b.gradients();
  const auto sends = b.sends();
  ASSERT_THAT(chunksOf(sends), ElementsAre(0, 3));
  EXPECT_FALSE(sends[0].header.receipt());
  EXPECT_TRUE(b.sends().empty());
  EXPECT_TRUE(b.answer(sends[0]));
  EXPECT_THAT(chunksOf(b.sends()), ElementsAre(1)) << "the answer frees the place";
}

TEST(WorkerMachine, AWindowUntilTheAnswerFollowsItsLink) {
  WorkerBench b([](WorkerConfig& c) {
    c.window_until_answer = true;
    c.chunk_bytes = 1000;
  });
  b.see(v1::PHASE_ACTIVE, 1);
  b.serve();
  b.machine.onPace(0, 0, 0.6e6, std::chrono::milliseconds(1));  // 1200 bytes are to be under way
  b.machine.onPace(7, 0, 1e9, std::chrono::milliseconds(1));    // nobody
  b.turn();
  b.gradients();
  const auto sends = b.sends();
  ASSERT_THAT(chunksOf(sends), ElementsAre(0, 1, 3)) << "ps-1 has the window that it had";
  EXPECT_TRUE(b.answer(sends[0]));
  EXPECT_THAT(chunksOf(b.sends()), ElementsAre(2));
  b.see(v1::PHASE_SEALING, 2);
  b.see(v1::PHASE_ACTIVE, 2);
  EXPECT_THAT(chunksOf(b.sends()), ElementsAre(1, 3)) << "another server may be behind it";
}

TEST(WorkerMachine, ManyServersShareWhatIsUnderWay) {
  const auto begun = [](std::uint32_t servers) {
    WorkerBench b([&](WorkerConfig& c) {
      c.window_until_answer = true;
      c.window = 8;
      c.chunk_bytes = 1000;
      c.abreast_bytes = 36'000;
      c.ps_of_chunk.clear();
      for (std::uint32_t i = 0; i < 10 * servers; ++i)
        c.ps_of_chunk.push_back(static_cast<int>(i % servers));
    });
    v1::View view = b.view(v1::PHASE_ACTIVE, 1);
    for (std::uint32_t ps = 2; ps < servers; ++ps)
      WorkerBench::add(*view.mutable_epoch(), v1::ROLE_PS, ps, ps);
    b.see(view);
    return b.sends().size();
  };
  EXPECT_EQ(begun(2), 2 * 8u);
  EXPECT_EQ(begun(6), 6 * 8u) << "few have the whole window each";
  EXPECT_EQ(begun(9), 9 * 4u);
  EXPECT_EQ(begun(20), 20 * 3u) << "the least";
}

TEST(WorkerMachine, AWindowUntilReceivedFollowsNothing) {
  WorkerBench b([](WorkerConfig& c) { c.chunk_bytes = 1000; });
  b.see(v1::PHASE_ACTIVE, 1);
  b.serve();
  b.machine.onPace(0, 0, 1e9, std::chrono::milliseconds(1));
  b.turn();
  b.gradients();
  EXPECT_THAT(chunksOf(b.sends()), ElementsAre(0, 3));
}

TEST(WorkerMachine, AllChunksReachTheServersWithoutAnyAnswer) {
  // What a server holds back until the quorum is in must not hold back another chunk.
  WorkerBench b;
  b.see(v1::PHASE_ACTIVE, 1);
  b.serve();
  b.turn();
  b.gradients();
  const auto all = b.receiveAll();
  EXPECT_EQ(all.size(), 4u);
  EXPECT_EQ(b.machine.stepState(), StepState::kPending);
  for (const Send& send : all) EXPECT_TRUE(b.answer(send));
  EXPECT_EQ(b.machine.stepState(), StepState::kComplete);
  const WorkerMachine::StepEnd end = b.machine.endStep();
  EXPECT_DOUBLE_EQ(end.loss, 1.5);
  EXPECT_EQ(end.accuracy, 0.75) << "of all workers' samples";
  EXPECT_EQ(b.machine.version(), 1);
  EXPECT_TRUE(b.report().worker().has_loss());
  EXPECT_EQ(b.report().worker().loss_step(), 0);
}

TEST(WorkerMachine, AChunkGoesOutWhenItsGradientIsReadyTheLastWithTheLoss) {
  WorkerBench b;
  b.see(v1::PHASE_ACTIVE, 1);
  b.serve();
  b.turn();
  EXPECT_TRUE(b.sends().empty());
  b.machine.gradientReady(3);
  b.machine.gradientReady(1);
  auto sends = b.sends();
  ASSERT_THAT(chunksOf(sends), ElementsAre(1));
  EXPECT_TRUE(sends[0].with_payload);
  EXPECT_FALSE(sends[0].header.pull_only());
  EXPECT_EQ(sends[0].header.samples(), 2u);
  EXPECT_EQ(sends[0].header.loss_sum(), 0);
  EXPECT_FALSE(sends[0].header.has_hits());
  b.machine.lossReady({.loss_sum = 2.5, .samples = 2, .hits = 1});
  sends = b.sends();
  ASSERT_THAT(chunksOf(sends), ElementsAre(3));
  EXPECT_EQ(sends[0].header.loss_sum(), 2.5);
  EXPECT_EQ(sends[0].header.hits(), 1);
}

TEST(WorkerMachine, AnInterruptedStepIsResumedWhereItStood) {
  WorkerBench b;
  b.see(v1::PHASE_ACTIVE, 1);
  b.serve();
  b.turn();
  b.gradients();
  const auto sent = b.receiveAll();
  EXPECT_TRUE(b.answer(sent[0]));
  b.see(v1::PHASE_SEALING, 2);
  EXPECT_TRUE(b.machine.interrupted());
  EXPECT_EQ(b.report().sealed_epoch(), 2);
  EXPECT_FALSE(b.machine.onReply(sent[1].chunk, sent[1].attempt, absl::OkStatus(),
                                 b.refusal(v1::CHUNK_WRONG_EPOCH), b.now));
  b.now += std::chrono::seconds(1);
  EXPECT_TRUE(b.sends().empty());  // sealed
  b.see(v1::PHASE_ACTIVE, 2, 0);
  EXPECT_EQ(b.machine.stepState(), StepState::kPending);
  EXPECT_FALSE(b.answer(sent[2]));  // of the former epoch
  const auto again = b.receiveAll();
  EXPECT_EQ(again.size(), 3u);
  for (const Send& send : again) {
    EXPECT_NE(send.chunk, sent[0].chunk);
    EXPECT_EQ(send.header.epoch(), 2);
    EXPECT_EQ(send.header.step(), 0);
    EXPECT_TRUE(send.with_payload);
    EXPECT_TRUE(b.answer(send));
  }
  EXPECT_EQ(b.machine.stepState(), StepState::kComplete);
  b.machine.endStep();
  EXPECT_EQ(b.turn()->step, 1);
}

TEST(WorkerMachine, GradientsThatComeWhileNobodyComputesAreSentAfterwards) {
  WorkerBench b;
  b.see(v1::PHASE_ACTIVE, 1);
  b.serve();
  b.turn();
  b.machine.gradientReady(0);
  b.see(v1::PHASE_SEALING, 2);
  b.machine.gradientReady(1);
  b.machine.gradientReady(2);
  b.machine.gradientReady(3);
  b.machine.lossReady({.loss_sum = 1});
  EXPECT_TRUE(b.sends().empty());
  b.see(v1::PHASE_ACTIVE, 2, 0);
  EXPECT_EQ(b.serve(), 4);
  EXPECT_EQ(b.machine.stepState(), StepState::kComplete);
}

TEST(WorkerMachine, ACopyInProgressWhenTheEpochChangesIsRepeated) {
  WorkerBench b;
  b.see(v1::PHASE_ACTIVE, 1);
  b.serve();
  b.turn();
  b.gradients();
  const auto sent = b.receiveAll();
  ASSERT_TRUE(b.machine.onReply(0, sent[0].attempt, absl::OkStatus(), b.ok(1), b.now));
  b.see(v1::PHASE_ACTIVE, 2, 0);
  auto again = b.receiveAll();
  EXPECT_EQ(again.size(), 3u);
  b.machine.onStored(0, sent[0].attempt);
  const auto last = b.receiveAll();
  ASSERT_THAT(chunksOf(last), ElementsAre(0));
  again.push_back(last[0]);
  for (const Send& send : again) EXPECT_TRUE(b.answer(send));
  EXPECT_EQ(b.machine.stepState(), StepState::kComplete);
}

struct Abandon {
  const char* name;
  void (*change)(v1::View&);
  std::int64_t first_step;
};

class AbandonTest : public testing::TestWithParam<Abandon> {};

TEST_P(AbandonTest, TheStepIsGivenUpAndTheEpochsWeightsArePulled) {
  WorkerBench b;
  b.see(v1::PHASE_ACTIVE, 1);
  b.serve();
  b.step();
  b.turn();  // step 1
  b.gradients();
  const auto sent = b.receiveAll();
  v1::View v = b.view(v1::PHASE_ACTIVE, 2, GetParam().first_step);
  GetParam().change(v);
  b.see(v);
  EXPECT_TRUE(b.machine.interrupted());
  ASSERT_EQ(b.machine.stepState(), StepState::kAbandoned);
  EXPECT_FALSE(b.answer(sent[0]));
  b.machine.gradientReady(1);  // the trainer is still at it
  const auto pulls = b.receiveAll();
  EXPECT_EQ(pulls.size(), 4u);
  for (const Send& send : pulls) {
    EXPECT_TRUE(send.header.pull_only());
    EXPECT_EQ(send.header.version(), GetParam().first_step);
    EXPECT_TRUE(b.answer(send));
  }
  EXPECT_FALSE(b.turn().has_value());  // until the trainer has taken note
  b.machine.endStep();
  const auto turn = b.turn();
  ASSERT_TRUE(turn.has_value());
  EXPECT_EQ(turn->step, GetParam().first_step);
  EXPECT_EQ(turn->epoch, 2);
}

INSTANTIATE_TEST_SUITE_P(
    WorkerMachine, AbandonTest,
    testing::Values(
        Abandon{"Restore",
                [](v1::View& v) { v.mutable_epoch()->set_restore_manifest("step-1.e1.json"); }, 1},
        Abandon{"Fresh", [](v1::View& v) { v.mutable_epoch()->set_fresh(true); }, 0},
        Abandon{"OtherRanks",
                [](v1::View& v) { WorkerBench::add(*v.mutable_epoch(), v1::ROLE_WORKER, 2, 2); },
                1}),
    [](const auto& p) { return p.param.name; });

// Step 1 has been sent, but no answer has come when epoch 2 begins behind it.
class OutcomeTest : public testing::Test {
 protected:
  OutcomeTest() {
    b.see(v1::PHASE_ACTIVE, 1);
    b.serve();
    b.step();
    b.turn();
    b.gradients();
    b.receiveAll();
    b.see(v1::PHASE_ACTIVE, 2, 2);
  }
  void expectPulls(std::int64_t version) {
    const auto pulls = b.receiveAll();
    EXPECT_EQ(pulls.size(), 4u);
    for (const Send& send : pulls) {
      EXPECT_TRUE(send.header.pull_only());
      EXPECT_EQ(send.header.version(), version);
      EXPECT_EQ(b.machine.stepState(), StepState::kPending);
      EXPECT_TRUE(b.answer(send));
    }
  }
  WorkerBench b;
};

TEST_F(OutcomeTest, AStepThatTheServersHaveCompletedIsTaken) {
  expectPulls(2);
  EXPECT_EQ(b.machine.stepState(), StepState::kComplete);
  EXPECT_EQ(b.machine.endStep().loss, 6.0 / 4);
  EXPECT_EQ(b.report().worker().loss_step(), 1);
  EXPECT_EQ(b.turn()->step, 2);
}

TEST_F(OutcomeTest, ThePullBeginsAgainInTheNextEpoch) {
  b.see(v1::PHASE_SEALING, 3);
  b.see(v1::PHASE_ACTIVE, 3, 2);
  expectPulls(2);
  EXPECT_EQ(b.machine.stepState(), StepState::kComplete);
}

TEST_F(OutcomeTest, ARollBackGivesTheStepUp) {
  v1::View v = b.view(v1::PHASE_ACTIVE, 3, 0);
  v.mutable_epoch()->set_restore_manifest("step-0.e1.json");
  b.see(v);
  EXPECT_EQ(b.machine.stepState(), StepState::kAbandoned);
  EXPECT_EQ(b.receiveAll().size(), 4u);
}

TEST_F(OutcomeTest, TheEndOfTheJobGivesTheStepUp) {
  b.see(v1::PHASE_FAILED, 2, 2);
  EXPECT_EQ(b.machine.stepState(), StepState::kAbandoned);
}

TEST(WorkerMachine, WeightsThatAreInPlaceAreNotPulledAgain) {
  WorkerBench b;
  b.see(v1::PHASE_ACTIVE, 1);
  b.serve();
  b.step();
  b.see(v1::PHASE_SEALING, 2);
  EXPECT_FALSE(b.turn().has_value());
  b.see(v1::PHASE_ACTIVE, 2, 1);
  EXPECT_TRUE(b.sends().empty());
  EXPECT_EQ(b.turn()->step, 1);
}

TEST(WorkerMachine, AnInterruptedPullBeginsAgain) {
  WorkerBench b;
  b.see(v1::PHASE_ACTIVE, 1);
  const auto old = b.sends();
  b.answer(old[0]);
  b.see(v1::PHASE_ACTIVE, 2, 0);
  EXPECT_FALSE(b.answer(old[1]));
  EXPECT_EQ(b.serve(), 4);
  EXPECT_EQ(b.machine.version(), 0);
}

TEST(WorkerMachine, AWorkerThatIsNotOfTheEpochWaits) {
  WorkerBench b([](WorkerConfig& c) { c.index = 7; });
  b.see(v1::PHASE_ACTIVE, 1);
  EXPECT_TRUE(b.sends().empty());
  EXPECT_FALSE(b.turn().has_value());
}

TEST(WorkerMachine, StaleViewsAreIgnored) {
  WorkerBench b;
  b.see(v1::PHASE_ACTIVE, 1);
  b.serve();
  v1::View stale = b.view(v1::PHASE_FAILED, 5);
  stale.set_sequence(1);
  b.see(stale);
  EXPECT_FALSE(b.machine.over());
  EXPECT_TRUE(b.turn().has_value());
  // A younger coordinator counts from one again.
  b.coordinator = 2;
  b.sequence = 0;
  b.see(v1::PHASE_SEALING, 6);
  EXPECT_TRUE(b.machine.interrupted());
  EXPECT_EQ(b.report().seen_view(), 1u);
  EXPECT_EQ(b.report().highest_epoch(), 6);
  // And the older one is not heard any more.
  b.coordinator = 1;
  b.sequence = 100;
  b.see(v1::PHASE_FAILED, 7);
  EXPECT_FALSE(b.machine.over());
}

TEST(WorkerMachine, FailuresAreRepeatedAfterADelayWaitsAtOnce) {
  WorkerBench b([](WorkerConfig& c) { c.retry_delay = std::chrono::milliseconds(50); });
  b.see(v1::PHASE_ACTIVE, 1);
  auto sends = b.sends();
  EXPECT_FALSE(b.machine.wakeAt().has_value());
  EXPECT_FALSE(
      b.machine.onReply(3, sends[1].attempt, absl::UnavailableError("ps-1: gone"), {}, b.now));
  EXPECT_THAT(b.machine.lastProblem(), HasSubstr("ps-1: gone"));
  EXPECT_EQ(b.machine.wakeAt(), b.now + std::chrono::milliseconds(50));
  EXPECT_TRUE(b.sends().empty());
  b.now += std::chrono::milliseconds(50);
  auto again = b.sends();
  ASSERT_THAT(chunksOf(again), ElementsAre(3));
  EXPECT_NE(again[0].attempt, sends[1].attempt);
  EXPECT_FALSE(b.answer(sends[1]));  // the former attempt
  EXPECT_FALSE(b.machine.wakeAt().has_value());
  EXPECT_FALSE(b.machine.onReply(3, again[0].attempt, absl::OkStatus(),
                                 b.refusal(v1::CHUNK_NOT_READY), b.now));
  EXPECT_THAT(chunksOf(b.sends()), ElementsAre(3));
}

TEST(WorkerMachine, AVersionThatWasNotAskedForIsNotStored) {
  WorkerBench b;
  b.see(v1::PHASE_ACTIVE, 1, 2);
  const auto sends = b.sends();
  EXPECT_FALSE(b.machine.onReply(0, sends[0].attempt, absl::OkStatus(), b.ok(3), b.now));
  EXPECT_TRUE(b.machine.wakeAt().has_value());
}

}  // namespace
}  // namespace trainyard::runtime::ps
