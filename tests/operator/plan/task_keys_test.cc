#include "operator/cluster/task_keys.h"

#include "gtest/gtest.h"

namespace trainyard::control {
namespace {

TEST(Indices, AreCompressed) {
  EXPECT_EQ(formatIndices({}), "");
  EXPECT_EQ(formatIndices({3}), "3");
  EXPECT_EQ(formatIndices({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
}

TEST(Indices, ComeBack) {
  for (const std::set<std::uint32_t>& set :
       std::vector<std::set<std::uint32_t>>{{}, {0}, {0, 1}, {1, 3, 5}, {0, 2, 3, 4, 4095}}) {
    EXPECT_EQ(parseIndices(formatIndices(set)), set);
  }
}

TEST(Indices, WhatDoesNotParseIsSkipped) {
  EXPECT_EQ(parseIndices("x,2,-,4-,5-6"), (std::set<std::uint32_t>{2, 4, 5, 6}));
  EXPECT_EQ(parseIndices("6-5"), std::set<std::uint32_t>{});
  EXPECT_LE(parseIndices("0-4294967295").size(), 65536u);
}

TEST(WantedTasks, AreThoseOfTheStatusAndTheLowestFreeOnes) {
  v1::TrainingJob job;
  job.mutable_spec()->mutable_ps()->set_replicas(1);
  job.mutable_spec()->mutable_worker()->set_replicas(3);
  const auto names = [&] {
    std::vector<std::string> texts;
    for (const TaskKey& key : wantedTasks(job)) texts.push_back(toString(key));
    return texts;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(), (Names{"ps-0", "worker-0", "worker-1", "worker-2"}));
  job.mutable_status()->mutable_worker()->set_indices("2-3");
  job.mutable_status()->mutable_worker()->set_finished_indices("0");
  EXPECT_EQ(names(), (Names{"ps-0", "worker-0", "worker-2", "worker-3"}));
  job.mutable_spec()->mutable_worker()->set_replicas(2);
  job.mutable_status()->mutable_worker()->clear_finished_indices();
  job.mutable_status()->mutable_worker()->set_indices("0-2");
  EXPECT_EQ(names(), (Names{"ps-0", "worker-0", "worker-1"})) << "one is leaving";
}

}  // namespace
}  // namespace trainyard::control
