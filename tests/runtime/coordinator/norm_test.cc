// Clipping: the coordinator puts the servers' sums of squares together.
#include <cmath>

#include "gmock/gmock.h"
#include "tests/runtime/coordinator/bench.h"

namespace trainyard::runtime {
namespace {

// `elements` numbers of the given value.
void setPart(v1::MemberReport& r, std::int64_t step, float value, int elements) {
  SquareSum sum;
  sum.add(std::vector<float>(static_cast<std::size_t>(elements), value));
  v1::SquareSum* part = r.mutable_shard()->mutable_squares();
  part->set_step(step);
  part->mutable_limbs()->Assign(sum.limbs().begin(), sum.limbs().end());
}

TEST(CoordinatorNorm, IsToldWhenEveryServerHasSummedTheStep) {
  Bench b(3, 2);
  b.activate();
  setPart(b.ps(0), 0, 2, 3);
  setPart(b.ps(1), 0, 0.5f, 4);
  b.settle();
  EXPECT_FALSE(b.last_view.has_gradient_norm());
  setPart(b.ps(2), 0, 1e-20f, 1);
  b.settle();
  ASSERT_TRUE(b.last_view.has_gradient_norm());
  EXPECT_EQ(b.last_view.gradient_norm().step(), 0);
  EXPECT_EQ(b.last_view.gradient_norm().norm(), std::sqrt(13.0));
}

TEST(CoordinatorNorm, WaitsForTheSlowestStep) {
  Bench b(2, 2);
  b.activate();
  setPart(b.ps(0), 4, 1, 1);
  setPart(b.ps(1), 4, 1, 3);
  b.settle();
  EXPECT_EQ(b.last_view.gradient_norm().norm(), 2);
  setPart(b.ps(0), 5, 3, 1);
  b.settle();
  EXPECT_EQ(b.last_view.gradient_norm().step(), 4) << "ps-1 has not summed step 5";
  setPart(b.ps(1), 5, 4, 1);
  b.settle();
  EXPECT_EQ(b.last_view.gradient_norm().step(), 5);
  EXPECT_EQ(b.last_view.gradient_norm().norm(), 5);
}

TEST(CoordinatorNorm, AServerWithoutVariablesTakesNoPart) {
  Bench b(2, 2);
  b.activate();
  b.ps(1).set_parameter_bytes(0);
  b.ps(1).mutable_shard()->set_min_version(-1);
  b.ps(1).mutable_shard()->set_max_version(-1);
  setPart(b.ps(0), 0, 3, 1);
  b.settle();
  EXPECT_EQ(b.last_view.gradient_norm().norm(), 3);
}

TEST(CoordinatorNorm, ALateReportOfAnEmptyServerDoesNotLeaveItOut) {
  Bench b(2, 2);
  b.activate();
  b.ps(1).mutable_shard()->set_max_version(-1);
  setPart(b.ps(0), 0, 3, 1);
  b.settle();
  EXPECT_FALSE(b.last_view.has_gradient_norm());
}

TEST(CoordinatorNorm, WakesServersAndLetsWorkersSleep) {
  Bench b(2, 1);
  b.activate();
  const std::uint64_t first = b.send(b.ps(0));
  const std::uint64_t worker = b.send(b.worker(0));
  ASSERT_FALSE(b.reply(first).has_value());
  ASSERT_FALSE(b.reply(worker).has_value());
  setPart(b.ps(1), 0, 3, 1);
  b.send(b.ps(1));
  EXPECT_FALSE(b.reply(first).has_value());
  setPart(b.ps(0), 0, 4, 1);
  const std::uint64_t second = b.send(b.ps(0));
  ASSERT_TRUE(b.reply(second).has_value());
  EXPECT_EQ(b.reply(second)->gradient_norm().norm(), 5);
  EXPECT_FALSE(b.reply(worker).has_value());
  b.tick(std::chrono::seconds(1));
  ASSERT_TRUE(b.reply(worker).has_value());
  // What concerns the worker wakes it, though it has not seen the views in between.
  b.worker(0).set_seen_view(b.reply(worker)->sequence());
  const std::uint64_t again = b.send(b.worker(0));
  EXPECT_FALSE(b.reply(again).has_value());
  b.c.requestStop(b.now);
  b.take();
  EXPECT_TRUE(b.reply(again).has_value());
}

TEST(CoordinatorNorm, AnOlderReportThatComesLateTakesNothingBack) {
  Bench b(2, 1);
  b.activate();
  setPart(b.ps(0), 6, 1, 1);
  const v1::MemberReport late = b.ps(0);
  setPart(b.ps(0), 7, 3, 1);
  b.say(b.ps(0));
  b.send(late);
  setPart(b.ps(1), 7, 4, 1);
  b.say(b.ps(1));
  EXPECT_EQ(b.last_view.gradient_norm().step(), 7);
  EXPECT_EQ(b.last_view.gradient_norm().norm(), 5);
}

TEST(CoordinatorNorm, ANewEpochForgetsItAndTakesWhatIsReportedUnderIt) {
  Bench b(2, 2);
  b.activate();
  b.reach(3);
  setPart(b.ps(0), 3, 3, 1);
  setPart(b.ps(1), 3, 4, 1);
  b.settle();
  ASSERT_TRUE(b.last_view.has_gradient_norm());
  // ps-0 has taken step 3 and keeps its part; ps-1 was sealed before, and has dropped its own.
  Bench::setShard(b.ps(0), 4);
  b.restart(b.worker(1));
  b.say(b.worker(1));
  ASSERT_EQ(b.c.phase(), v1::PHASE_SEALING);
  EXPECT_FALSE(b.last_view.has_gradient_norm());
  b.ps(1).mutable_shard()->clear_squares();
  b.settle();
  ASSERT_EQ(b.c.phase(), v1::PHASE_ACTIVE);
  EXPECT_FALSE(b.last_view.has_gradient_norm());
  setPart(b.ps(1), 3, 4, 1);
  b.settle();
  EXPECT_EQ(b.last_view.gradient_norm().step(), 3);
  EXPECT_EQ(b.last_view.gradient_norm().norm(), 5);
}

// ps-1 has prepared an epoch of that number for an earlier coordinator, and summed a late step.
TEST(CoordinatorNorm, ASuccessorTakesNoSumOfItsPredecessorsEpochs) {
  Bench b(2, 1);
  b.ps(1).set_highest_epoch(1);
  b.ps(1).set_sealed_epoch(1);
  b.ps(1).set_prepared_epoch(1);
  *b.ps(1).mutable_seen_coordinator() = incarnation(0, 9);
  Bench::setShard(b.ps(1), 26);
  setPart(b.ps(1), 26, 1, 1);
  b.say(b.ps(1));
  b.ps(1).mutable_shard()->clear_squares();
  b.activate();
  setPart(b.ps(0), 0, 3, 1);
  setPart(b.ps(1), 0, 4, 1);
  b.settle();
  EXPECT_EQ(b.last_view.gradient_norm().step(), 0);
  EXPECT_EQ(b.last_view.gradient_norm().norm(), 5);
}

TEST(CoordinatorNorm, ASumOfAnotherFormFailsTheJobByName) {
  Bench b(2, 1);
  b.activate();
  setPart(b.ps(1), 2, 1, 1);
  b.ps(1).mutable_shard()->mutable_squares()->add_limbs(0);
  b.say(b.ps(1));
  EXPECT_EQ(b.c.phase(), v1::PHASE_FAILED);
  EXPECT_EQ(b.c.failure(), "ps-1: step 2: a sum of squares of 11 limbs, expected 10");
}

}  // namespace
}  // namespace trainyard::runtime
