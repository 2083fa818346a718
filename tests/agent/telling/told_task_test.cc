#include "agent/telling/told_task.h"

#include "gtest/gtest.h"

namespace trainyard::agent {
namespace {

TimePoint second(double seconds) {
  return TimePoint(std::chrono::hours(1)) + fromSeconds(seconds);
}

v1::RuntimeReport reportOf(const ToldTask& task, double seconds) {
  v1::RuntimeReport report;
  task.fill(second(seconds), &report);
  return report;
}

Telling telling(std::int64_t step, std::uint64_t examples) {
  Telling said;
  said.step = step;
  said.examples = examples;
  return said;
}

TEST(ToldTask, SaysNothingBeforeItWasTold) {
  EXPECT_FALSE(reportOf(ToldTask(1), 0).has_told());
}

TEST(ToldTask, KeepsWhatIsNotToldAgain) {
  ToldTask task(1);
  Telling first = telling(10, 640);
  first.accuracy = 0.75;
  first.steps = 100;
  task.take(0, first, second(0));
  Telling next = telling(12, 768);
  next.loss = 0.5;
  task.take(0, next, second(1));
  const v1::RuntimeReport report = reportOf(task, 1);
  EXPECT_EQ(report.told().step(), 12);
  EXPECT_EQ(report.told().steps(), 100);
  EXPECT_EQ(report.told().loss(), 0.5);
  EXPECT_EQ(report.told().accuracy(), 0.75);
  EXPECT_EQ(report.told().accuracy_step(), 10);
  EXPECT_EQ(report.told().examples_per_second(), 128);
  EXPECT_EQ(report.examples(), 768u);
  EXPECT_EQ(report.completed_steps(), 2u) << "the first step that is told may be a checkpoint's";
  EXPECT_FALSE(report.told().has_epoch());
  EXPECT_FALSE(reportOf(task, 60).told().has_examples_per_second()) << "silent";
}

TEST(ToldTask, SpeaksForAllProcesses) {
  ToldTask task(3);
  task.take(2, telling(9, 100), second(0));
  EXPECT_EQ(reportOf(task, 0).told().step(), 9) << "the others tell none";
  task.take(0, telling(8, 100), second(0));
  Telling loss = telling(8, 150);
  loss.loss = 2;
  task.take(0, loss, second(1));
  loss.loss = 1;
  loss.examples = 200;
  loss.step = 10;
  task.take(2, loss, second(1));
  const v1::RuntimeReport report = reportOf(task, 1);
  EXPECT_EQ(report.told().step(), 8) << "the least";
  EXPECT_EQ(report.told().loss(), 2) << "of the first that tells it";
  EXPECT_EQ(report.examples(), 350u);
  EXPECT_EQ(report.completed_steps(), 1u);
  EXPECT_EQ(report.told().examples_per_second(), 150);
}

TEST(ToldTask, CountsOnWhenACountStartsAnew) {
  ToldTask task(1);
  task.take(0, telling(10, 640), second(0));
  task.take(0, telling(1, 64), second(1));  // of the next pass
  const v1::RuntimeReport report = reportOf(task, 1);
  EXPECT_EQ(report.told().step(), 1);
  EXPECT_EQ(report.examples(), 704u);
  EXPECT_EQ(report.told().examples_per_second(), 64);
}

TEST(ToldTask, ForgetsAProgramThatHasEnded) {
  ToldTask task(2);
  task.take(1, telling(10, 640), second(0));
  task.restart();
  EXPECT_FALSE(reportOf(task, 0).has_told());
  task.take(1, telling(3, 192), second(1));
  EXPECT_EQ(reportOf(task, 1).told().step(), 3);
  EXPECT_EQ(reportOf(task, 1).examples(), 192u);
}

}  // namespace
}  // namespace trainyard::agent
