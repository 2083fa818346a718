#include "operator/progress/told_progress.h"

#include "gtest/gtest.h"

namespace trainyard::control {
namespace {

v1::TaskState worker(std::int64_t step, double rate) {
  v1::TaskState state;
  state.mutable_id()->set_role(v1::ROLE_WORKER);
  state.set_child("Running");
  state.mutable_report()->mutable_told()->set_step(step);
  state.mutable_report()->mutable_told()->set_examples_per_second(rate);
  return state;
}

TEST(ToldProgress, IsNothingWhereNobodyTells) {
  EXPECT_FALSE(toldProgress({}).has_value());
  v1::TaskState silent;
  silent.mutable_id()->set_role(v1::ROLE_WORKER);
  silent.mutable_report()->set_ready(true);
  v1::TaskState ps = worker(7, 1);
  ps.mutable_id()->set_role(v1::ROLE_PS);
  EXPECT_FALSE(toldProgress({{&silent}, {&ps}}).has_value()) << "servers do not train";
}

TEST(ToldProgress, PutsTheWorkersTogether) {
  v1::TaskState first = worker(7, 100), second = worker(9, 50), third = worker(8, 25);
  second.mutable_report()->mutable_told()->set_loss(0.5);
  second.mutable_report()->mutable_told()->set_steps(70);
  third.mutable_report()->mutable_told()->set_loss(0.25);
  third.mutable_report()->mutable_told()->set_accuracy(0.75);
  third.mutable_report()->mutable_told()->set_accuracy_step(6);
  const auto progress = toldProgress({{&first}, {&second}, {&third}});
  ASSERT_TRUE(progress.has_value());
  EXPECT_EQ(progress->step(), 9);
  EXPECT_EQ(progress->steps(), 70);
  EXPECT_EQ(progress->examples_per_second(), 175);
  EXPECT_TRUE(progress->has_loss());
  EXPECT_EQ(progress->loss(), 0.5) << "of the first that tells one";
  EXPECT_TRUE(progress->evaluated());
  EXPECT_EQ(progress->accuracy_step(), 6);
  EXPECT_EQ(progress->outcome(), "") << "how it ends its tasks say";
}

TEST(ToldProgress, WhoHasEndedDoesNothingAnyMore) {
  v1::TaskState first = worker(7, 100), second = worker(9, 50);
  second.set_child("Exited");
  const auto progress = toldProgress({{&first, true}, {&second}});
  ASSERT_TRUE(progress.has_value());
  EXPECT_EQ(progress->step(), 9);
  EXPECT_EQ(progress->examples_per_second(), 0);
}

}  // namespace
}  // namespace trainyard::control
