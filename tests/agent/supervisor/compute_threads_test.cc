#include "agent/supervisor/compute_threads.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard::agent {
namespace {

using testing::HasSubstr;

ComputeThreads chosen(const v1::Training& training, double cores, int processes) {
  const auto threads = computeThreads(training, {cores, "of this machine"}, processes);
  EXPECT_TRUE(threads.ok()) << threads.status();
  return threads.value_or(ComputeThreads{});
}

TEST(ComputeThreads, AutoIsTheWholeCoresOfEachProcess) {
  struct Row {
    double cores;
    int processes;
    int threads;
  };
  v1::Training training;
  for (const char* written : {"", "Auto"}) {
    if (*written != '\0') training.set_threads(written);
    for (const Row& row : {Row{1, 1, 1}, Row{2, 1, 2}, Row{2, 2, 1}, Row{8, 3, 2}, Row{3.9, 1, 3},
                           Row{0.5, 1, 1}, Row{2, 4, 1}, Row{4096, 1, 1024}}) {
      EXPECT_EQ(chosen(training, row.cores, row.processes).number, row.threads)
          << row.cores << " over " << row.processes;
    }
  }
}

TEST(ComputeThreads, SaysWhy) {
  v1::Training training;
  EXPECT_EQ(chosen(training, 2, 1).reason, "training.threads: Auto, 2 cores of this machine");
  EXPECT_EQ(chosen(training, 1, 1).reason, "training.threads: Auto, 1 core of this machine");
  EXPECT_EQ(chosen(training, 2.5, 2).reason,
            "training.threads: Auto, 2.5 cores of this machine, shared by 2 processes");
  training.set_threads("3");
  EXPECT_EQ(chosen(training, 2, 1).reason, "training.threads");
}

TEST(ComputeThreads, AGivenNumberIsTaken) {
  v1::Training training;
  training.set_threads("3");
  EXPECT_EQ(chosen(training, 1, 4).number, 3);
  training.set_deterministic(true);
  EXPECT_EQ(chosen(training, 1, 4).number, 3);
}

// Workers whose machines differ, and a worker that comes back on another one, round alike.
TEST(ComputeThreads, AutoOfADeterministicJobDoesNotDependOnTheMachine) {
  v1::Training training;
  training.set_deterministic(true);
  for (const double cores : {0.5, 1.0, 2.0, 64.0}) {
    EXPECT_EQ(chosen(training, cores, 1).number, 1);
    EXPECT_THAT(chosen(training, cores, 1).reason, HasSubstr("deterministic"));
  }
}

TEST(ComputeThreads, WhatIsNoNumberIsRefused) {
  for (const char* wrong : {"", "auto", "0", "-1", "1025", "2 ", "1e3"}) {
    v1::Training training;
    training.set_threads(wrong);
    const Status status = computeThreads(training, {2, ""}, 1).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("spec.training.threads: expected Auto or a whole number from 1 to 1024"));
  }
}

}  // namespace
}  // namespace trainyard::agent
