// Evaluation, stops, failures: what a worker does beside and after its steps.
#include <limits>

#include "gmock/gmock.h"
#include "tests/runtime/ps/worker_bench.h"

namespace trainyard::runtime::ps {
namespace {

using StepState = WorkerMachine::StepState;

void start(WorkerBench& b) {
  b.see(v1::PHASE_ACTIVE, 1);
  b.serve();
}

// A step whose gradients have left, and nothing has come back.
void sendStep(WorkerBench& b) {
  start(b);
  b.turn();
  b.gradients();
  b.receiveAll();
}

TEST(WorkerEvaluation, IsDueAtItsIntervalAndAtTheEnd) {
  struct Case {
    std::int64_t every;
    bool evaluates;
    std::vector<std::int64_t> due;
  };
  for (const Case& c : {Case{2, true, {2, 4}}, Case{0, true, {4}}, Case{1, true, {1, 2, 3, 4}},
                        Case{3, true, {3, 4}}, Case{1, false, {}}}) {
    WorkerBench b([&](WorkerConfig& w) {
      w.evaluates = c.evaluates;
      w.evaluate_every = c.every;
    });
    start(b);
    std::vector<std::int64_t> due;
    for (auto turn = b.turn(); turn.has_value(); turn = b.turn()) {
      if (turn->kind == Turn::Kind::kEvaluate) {
        due.push_back(turn->step);
        b.machine.evaluated(1, 2, 0.5);
        continue;
      }
      b.gradients();
      b.serve();
      b.machine.endStep();
    }
    EXPECT_EQ(due, c.due) << "every " << c.every;
    EXPECT_EQ(b.machine.version(), 4);
  }
}

TEST(WorkerEvaluation, ItsPartIsReportedUntilTheWholeIsKnown) {
  WorkerBench b([](WorkerConfig& c) { c.evaluate_every = 2; });
  start(b);
  b.step();
  b.step();
  ASSERT_EQ(b.turn()->kind, Turn::Kind::kEvaluate);
  b.machine.takeUrgent();
  b.machine.evaluated(7, 10, 2.5);
  EXPECT_TRUE(b.machine.takeUrgent());
  ASSERT_EQ(b.report().worker().evaluations_size(), 1);
  const v1::EvaluationPart part = b.report().worker().evaluations(0);
  EXPECT_EQ(part.version(), 2);
  EXPECT_EQ(part.epoch(), 1);
  EXPECT_EQ(part.rank(), 0u);
  EXPECT_EQ(part.hits(), 7);
  EXPECT_EQ(part.samples(), 10);
  b.evaluation.set_version(2);
  b.evaluation.set_samples(20);
  b.see(v1::PHASE_ACTIVE, 1);
  EXPECT_EQ(b.report().worker().evaluations_size(), 0);
}

TEST(WorkerEvaluation, IsNotDueWhenTheResultIsKnownAndDueAgainInANewEpoch) {
  WorkerBench b([](WorkerConfig& c) { c.evaluate_every = 2; });
  start(b);
  b.step();
  b.step();
  ASSERT_EQ(b.turn()->kind, Turn::Kind::kEvaluate);
  b.see(v1::PHASE_SEALING, 2);
  b.machine.evaluated(7, 10, 2.5);  // interrupted: not taken
  EXPECT_EQ(b.report().worker().evaluations_size(), 0);
  b.see(v1::PHASE_ACTIVE, 2, 2);
  ASSERT_EQ(b.turn()->kind, Turn::Kind::kEvaluate);
  EXPECT_FALSE(b.machine.interrupted());
  b.machine.evaluated(7, 10, 2.5);
  b.see(v1::PHASE_SEALING, 3);
  b.see(v1::PHASE_ACTIVE, 3, 2);
  EXPECT_EQ(b.turn()->kind, Turn::Kind::kEvaluate);  // the slices may have changed
  b.evaluation.set_version(2);
  b.evaluation.set_samples(20);
  b.see(v1::PHASE_SEALING, 4);
  b.see(v1::PHASE_ACTIVE, 4, 2);
  EXPECT_EQ(b.turn()->kind, Turn::Kind::kTrain);
}

TEST(WorkerStop, RestsBetweenStepsAndLeavesWhenStopped) {
  WorkerBench b;
  start(b);
  b.step();
  b.machine.takeUrgent();
  EXPECT_FALSE(b.report().worker().idle());
  b.see(v1::PHASE_STOPPING, 1);
  EXPECT_TRUE(b.machine.takeUrgent());
  EXPECT_TRUE(b.report().worker().idle());
  EXPECT_EQ(b.report().worker().version(), 1);
  EXPECT_FALSE(b.turn().has_value());
  v1::View v = b.view(v1::PHASE_STOPPED, 1);
  v.set_progress(1);
  b.see(v);
  EXPECT_TRUE(b.report().leaving());
  EXPECT_TRUE(b.machine.over());
  const auto turn = b.turn();
  ASSERT_TRUE(turn.has_value());
  EXPECT_EQ(turn->kind, Turn::Kind::kStopped);
  EXPECT_EQ(turn->step, 1);
}

TEST(WorkerStop, AStepInProgressIsFinishedFirst) {
  WorkerBench b;
  start(b);
  b.turn();
  b.see(v1::PHASE_STOPPING, 1);
  EXPECT_FALSE(b.report().worker().idle());
  EXPECT_EQ(b.machine.stepState(), StepState::kPending);
  b.gradients();
  EXPECT_EQ(b.serve(), 4);
  ASSERT_EQ(b.machine.stepState(), StepState::kComplete);
  EXPECT_FALSE(b.report().worker().idle());  // the trainer has not noted it yet
  b.machine.takeUrgent();
  b.machine.endStep();
  EXPECT_TRUE(b.machine.takeUrgent());
  EXPECT_TRUE(b.report().worker().idle());
  EXPECT_EQ(b.report().worker().version(), 1);
}

TEST(WorkerStop, AStepThatOthersDoNotTakeIsAbandoned) {
  WorkerBench b;
  sendStep(b);
  v1::View v = b.view(v1::PHASE_STOPPING, 1);
  v.set_stop_at(0);
  b.see(v);
  ASSERT_EQ(b.machine.stepState(), StepState::kAbandoned);
  b.machine.endStep();
  EXPECT_TRUE(b.report().worker().idle());
  EXPECT_EQ(b.report().worker().version(), 0);
}

TEST(WorkerStop, AnswersThatComeAfterTheEndChangeNothing) {
  WorkerBench b;
  start(b);
  b.turn();
  b.gradients();
  const auto sent = b.receiveAll();
  ASSERT_TRUE(
      b.machine.onReply(0, sent[0].attempt, absl::OkStatus(), b.ok(1), b.now));  // being copied
  b.see(v1::PHASE_STOPPED, 1);
  ASSERT_EQ(b.machine.stepState(), StepState::kAbandoned);
  EXPECT_FALSE(b.report().leaving());  // the trainer still waits for the step
  b.machine.endStep();
  EXPECT_TRUE(b.report().leaving());
  b.machine.onStored(0, sent[0].attempt);
  for (std::size_t i = 1; i < sent.size(); ++i) EXPECT_FALSE(b.answer(sent[i]));
  EXPECT_EQ(b.machine.version(), 0);
  EXPECT_EQ(b.machine.stepState(), StepState::kNone);
  EXPECT_TRUE(b.report().leaving());
}

TEST(WorkerStop, AStopThatANewEpochEndsIsForgotten) {
  WorkerBench b;
  start(b);
  b.see(v1::PHASE_STOPPING, 1);
  b.see(v1::PHASE_SEALING, 2);
  EXPECT_FALSE(b.report().worker().idle());
  b.see(v1::PHASE_ACTIVE, 2, 0);
  EXPECT_EQ(b.turn()->kind, Turn::Kind::kTrain);
}

TEST(WorkerEnd, AfterTheLastStepItWaitsForTheRest) {
  WorkerBench b([](WorkerConfig& c) { c.evaluates = false; });
  b.steps = 1;
  start(b);
  b.step();
  EXPECT_FALSE(b.turn().has_value());
  v1::View v = b.view(v1::PHASE_DONE, 1);
  v.set_progress(1);
  b.see(v);
  EXPECT_EQ(b.turn()->kind, Turn::Kind::kDone);
  EXPECT_EQ(b.turn()->step, 1);
  EXPECT_TRUE(b.report().leaving());
}

// Whoever hears that the job is over while it waits for the last step's answers knows that the step
// was taken.
TEST(WorkerEnd, TheLastStepsAnswersMayComeTooLate) {
  WorkerBench b([](WorkerConfig& c) { c.evaluates = false; });
  b.steps = 1;
  sendStep(b);
  v1::View v = b.view(v1::PHASE_DONE, 1);
  v.set_progress(1);
  b.see(v);
  EXPECT_EQ(b.machine.stepState(), StepState::kAbandoned);
  b.machine.endStep();
  const auto turn = b.turn();
  ASSERT_TRUE(turn.has_value());
  EXPECT_EQ(turn->kind, Turn::Kind::kDone);
  EXPECT_EQ(turn->taken, 1);
}

// With backup workers a step may be taken without this one's gradient, and a job that goes on
// without it tells it nothing.
TEST(WorkerEnd, OtherwiseItIsNotKnownWhetherAStepWasTakenWithItsGradient) {
  WorkerBench backed([](WorkerConfig& c) { c.evaluates = false; });
  backed.backup_workers = 1;
  start(backed);
  v1::View done = backed.view(v1::PHASE_DONE, 1);
  done.set_progress(1);
  backed.see(done);
  ASSERT_EQ(backed.turn()->kind, Turn::Kind::kDone);
  EXPECT_EQ(backed.turn()->taken, 0);

  WorkerBench left;
  start(left);
  v1::View gone = left.view(v1::PHASE_ACTIVE, 1, 1);
  gone.set_left(true);
  gone.set_progress(1);
  left.see(gone);
  ASSERT_EQ(left.turn()->kind, Turn::Kind::kLeft);
  EXPECT_EQ(left.turn()->taken, 0);
}

TEST(WorkerEnd, ARefusalAndAFailureAreErrors) {
  WorkerBench b;
  v1::View v = b.view(v1::PHASE_SEALING, 1);
  v.set_refusal("worker-0 has other data than worker-1");
  b.see(v);
  const Status refused = b.machine.turn().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(failureClass(refused), FailureClass::kPermanent);
  EXPECT_EQ(std::string(refused.message()), "worker-0 has other data than worker-1");
  v = b.view(v1::PHASE_FAILED, 1);
  v.set_failure("worker-1: step 3, variable fc1: the gradient is not finite");
  b.see(v);
  EXPECT_EQ(b.machine.turn().status(), absl::FailedPreconditionError(v.failure()));
}

TEST(WorkerEnd, AnAbortIsReportedAndKeepsTheStepFromBecomingComplete) {
  WorkerBench b;
  start(b);
  b.turn();
  for (std::uint32_t c = 0; c < 4; ++c) b.machine.gradientReady(c);
  b.machine.takeUrgent();
  b.machine.abort(0, "", "the loss is nan");
  EXPECT_TRUE(b.machine.takeUrgent());
  b.machine.lossReady({.loss_sum = std::numeric_limits<double>::quiet_NaN()});
  for (const Send& send : b.receiveAll()) EXPECT_NE(send.chunk, 3u);
  EXPECT_EQ(b.report().abort().reason(), "the loss is nan");
  EXPECT_EQ(b.report().abort().step(), 0);
  b.see(v1::PHASE_FAILED, 1);
  EXPECT_EQ(b.machine.stepState(), StepState::kAbandoned);
}

// Worker 1 of 2; three full steps of four samples, and one of a single sample, which is worker 0's.
class WorkerAside : public testing::Test {
 protected:
  WorkerAside() : b_([](WorkerConfig& c) { c.index = 1; }) {
    b_.end_position = 13;
    start(b_);
    for (int i = 0; i < 3; ++i) b_.step();
  }
  // The requests by which it waits for version 4.
  std::vector<Send> stands() {
    EXPECT_FALSE(b_.turn().has_value());
    return b_.receiveAll();
  }
  WorkerBench b_;
};

TEST_F(WorkerAside, WaitsForTheStepThatHasNoSamplesForIt) {
  const std::vector<Send> sends = stands();
  ASSERT_EQ(sends.size(), 4u);
  for (const Send& send : sends) {
    EXPECT_FALSE(send.with_payload);
    EXPECT_FALSE(send.header.pull_only());
    EXPECT_EQ(send.header.step(), 3);
    EXPECT_EQ(send.header.samples(), 0u);
  }
  EXPECT_EQ(b_.report().worker().version(), 3);
  for (const Send& send : sends) EXPECT_TRUE(b_.answer(send));
  EXPECT_EQ(b_.report().worker().version(), 4);
  EXPECT_EQ(b_.report().worker().loss_step(), 3);
  EXPECT_EQ(b_.machine.stepState(), StepState::kNone);
  EXPECT_EQ(b_.turn()->kind, Turn::Kind::kEvaluate);
}

TEST_F(WorkerAside, AnEpochThatKeepsTheStateResumesTheWait) {
  const std::vector<Send> sends = stands();
  EXPECT_TRUE(b_.answer(sends[0]));
  b_.see(v1::PHASE_SEALING, 2);
  b_.first_position = 12;
  b_.see(v1::PHASE_ACTIVE, 2, 3);
  const std::vector<Send> again = b_.receiveAll();
  ASSERT_EQ(again.size(), 3u) << "one chunk is there already";
  for (const Send& send : again) EXPECT_TRUE(b_.answer(send));
  EXPECT_EQ(b_.machine.version(), 4);
}

TEST_F(WorkerAside, WhatItHoldsInPartIsPulledAnewWhenTheStepIsComplete) {
  const std::vector<Send> sends = stands();
  EXPECT_TRUE(b_.answer(sends[0]));
  b_.see(v1::PHASE_SEALING, 2);
  b_.first_position = 13;
  b_.see(v1::PHASE_ACTIVE, 2, 4);
  EXPECT_EQ(b_.machine.version(), -1);
  EXPECT_EQ(b_.serve(), 4);
  EXPECT_EQ(b_.machine.version(), 4);
}

// It cannot vouch for the others' rest: they may be in the middle of the step.
TEST_F(WorkerAside, AStopIsNotHeldUpAndNotAnsweredTooEarly) {
  b_.see(v1::PHASE_STOPPING, 1);
  EXPECT_FALSE(b_.report().worker().idle());
  const std::vector<Send> sends = stands();
  ASSERT_EQ(sends.size(), 4u);
  EXPECT_FALSE(b_.report().worker().idle());
  for (const Send& send : sends) EXPECT_TRUE(b_.answer(send));
  EXPECT_TRUE(b_.report().worker().idle());
  EXPECT_EQ(b_.report().worker().version(), 4);
}

TEST_F(WorkerAside, AStopBeforeTheStepEndsTheWait) {
  stands();
  v1::View v = b_.view(v1::PHASE_STOPPING, 1);
  v.set_stop_at(3);
  b_.see(v);
  EXPECT_FALSE(b_.turn().has_value());
  EXPECT_TRUE(b_.receiveAll().empty());
  EXPECT_EQ(b_.report().worker().version(), 3);
  b_.see(v1::PHASE_STOPPED, 1);
  EXPECT_EQ(b_.turn()->kind, Turn::Kind::kStopped);
  EXPECT_TRUE(b_.report().leaving());
}

}  // namespace
}  // namespace trainyard::runtime::ps
