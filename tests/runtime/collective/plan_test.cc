#include "runtime/collective/plan.h"

#include <mutex>
#include <thread>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/collective/group.h"
#include "tests/runtime/collective/ranks.h"

namespace trainyard::runtime::collective {
namespace {

using ::testing::HasSubstr;
using transport::blamedRank;

PlannedTensor tensor(std::string name, std::int64_t elements,
                     ElementType type = ElementType::kFloat32) {
  return {std::move(name), type, elements};
}

PlannedTensor byRows(std::string name, std::int64_t elements, std::int64_t rows) {
  return {std::move(name), ElementType::kFloat32, elements, rows};
}

TEST(BucketTest, TensorsShareABucketUntilItIsFull) {
  const std::vector<PlannedTensor> tensors = {tensor("a", 10),  tensor("b", 20),
                                              tensor("c", 71),  tensor("d", 29),
                                              tensor("e", 500), tensor("f", 1, ElementType::kInt64),
                                              tensor("g", 1)};
  const auto buckets = planBuckets(tensors, {.first_bytes = 120, .bytes = 400});
  std::vector<std::string> text;
  for (const Bucket& bucket : buckets) {
    std::string line;
    for (const auto& part : bucket.parts) {
      line += fmt::format("{}@{} ", tensors[part.tensor].name, part.offset);
    }
    text.push_back(fmt::format("{}: {}", bucket.elements, line));
  }
  EXPECT_THAT(text, ::testing::ElementsAre("30: a@0 b@10 ", "100: c@0 d@71 ", "500: e@0 ",
                                           "1: f@0 ", "1: g@0 "));
  EXPECT_TRUE(planBuckets({}, {}).empty());
}

TEST(PlanTest, NamesTheFirstDifference) {
  const std::vector<PlannedTensor> plan = {tensor("a", 1), tensor("b", 2)};
  EXPECT_EQ(differenceOf(plan, 0, plan, 1), "");
  EXPECT_EQ(differenceOf(plan, 0, std::vector{plan[0], tensor("b", 3)}, 2),
            "tensor 1 is b of 2 float32 on rank 0 and b of 3 float32 on rank 2");
  EXPECT_EQ(differenceOf(plan, 0, std::vector{plan[0]}, 2),
            "tensor 1, b of 2 float32, is only on rank 0, not on rank 2");
  EXPECT_EQ(differenceOf(plan, 0, std::vector{plan[0], byRows("b", 2, 2)}, 2),
            "tensor 1 is b of 2 float32 on rank 0 and b of 2 float32 by its 2 rows on rank 2");
}

TEST(BucketTest, WhatIsSummedByRowsIsInNone) {
  const std::vector<PlannedTensor> tensors = {byRows("a", 10, 5), tensor("b", 20),
                                              byRows("c", 8, 2), tensor("d", 3)};
  const auto buckets = planBuckets(tensors, {});
  ASSERT_EQ(buckets.size(), 1u);
  EXPECT_EQ(buckets[0].elements, 23);
  ASSERT_EQ(buckets[0].parts.size(), 2u);
  EXPECT_EQ(buckets[0].parts[0].tensor, 1u);
  EXPECT_EQ(buckets[0].parts[1].tensor, 3u);
  EXPECT_EQ(buckets[0].parts[1].offset, 20);
}

TEST(PlanTest, ARankWithAnotherPlanIsNamedOnAllRanks) {
  for (const testing::Group& group : testing::groups()) {
    if (group.ranks < 3) continue;
    const auto results = runRanks(group, {}, [](Collective& c) -> Status {
      std::vector<PlannedTensor> plan = {tensor("weights", 1000), tensor("bias", 10)};
      TY_RETURN_IF_ERROR(comparePlans(c, plan));
      if (c.rank() == 2) plan[1].type = ElementType::kFloat16;
      return comparePlans(c, plan);
    });
    for (const Status& result : results) {
      EXPECT_EQ(blamedRank(result), 2) << result;
      EXPECT_THAT(std::string(result.message()),
                  HasSubstr("tensor 1 is bias of 10 float32 on rank 0 and bias of 10 float16 on "
                            "rank 2"));
    }
  }
}

// One rank has read another model: what it would sum whole, the others sum by rows, or by others.
TEST(PlanTest, ARankWithOtherRowsIsNamed) {
  for (const std::int64_t other : {0, 5}) {
    const auto results =
        testing::runRanks({testing::Over::kTcp, 3}, {}, [&](Collective& c) -> Status {
          const std::int64_t rows = c.rank() == 1 ? other : 10;
          return comparePlans(c, std::vector{byRows("table", 100, rows), tensor("bias", 10)});
        });
    for (const Status& result : results) {
      EXPECT_EQ(blamedRank(result), 1) << result;
      EXPECT_THAT(std::string(result.message()),
                  HasSubstr("tensor 0 is table of 100 float32 by its 10 rows on rank 0 and table "
                            "of 100 float32"));
    }
  }
}

// Ranks that call another operation, or the same on other arrays: an error on all of them.
TEST(MismatchTest, IsAnErrorOnAllRanks) {
  using Act = std::function<Status(Collective&, std::vector<float>&)>;
  const Act sum = [](Collective& c, std::vector<float>& x) {
    return c.allReduce(arrayOf(x), Reduction::kSum);
  };
  const std::vector<std::pair<std::string, Act>> others = {
      {"another size",
       [](Collective& c, std::vector<float>& x) {
         return c.allReduce(arrayOf(std::span(x).first(999)), Reduction::kSum);
       }},
      {"another type",
       [](Collective& c, std::vector<float>& x) {
         Array array = arrayOf(x);
         array.type = ElementType::kInt32;
         return c.allReduce(array, Reduction::kSum);
       }},
      {"another reduction",
       [](Collective& c, std::vector<float>& x) {
         return c.allReduce(arrayOf(x), Reduction::kMax);
       }},
      {"another operation",
       [](Collective& c, std::vector<float>& x) { return c.broadcast(arrayOf(x), 1); }},
      {"one operation ahead", [](Collective& c, std::vector<float>& x) -> Status {
         TY_RETURN_IF_ERROR(c.barrier());
         return c.allReduce(arrayOf(x), Reduction::kSum);
       }}};
  for (const testing::Group& group : testing::groups()) {
    if (group.ranks == 1) continue;
    for (const auto& [what, other] : others) {
      const auto results = runRanks(group, {}, [&](Collective& c) -> Status {
        std::vector<float> x(1000);
        TY_RETURN_IF_ERROR(c.rank() == 1 ? other(c, x) : sum(c, x));
        return c.barrier();  // who only sends finds out here
      });
      for (std::size_t r = 0; r < results.size(); ++r) {
        EXPECT_FALSE(results[r].ok()) << nameOf(group) << ", " << what << ", rank " << r;
        EXPECT_TRUE(blamedRank(results[r]).has_value()) << results[r];
      }
    }
  }
}

// One group of two by the factory; what `act` does at each rank with what it got.
std::vector<Status> joinTwo(const GroupOptions& common,
                            const std::function<Status(Group&, int)>& act) {
  std::vector<transport::TcpListener> listeners;
  GroupOptions options = common;
  options.mesh.token = "token";
  for (int r = 0; r < 2; ++r) {
    auto listener = transport::TcpListener::listen("127.0.0.1", 0);
    if (!listener.ok()) return {listener.status()};
    options.mesh.addresses.push_back({"127.0.0.1", listener->port()});
    listeners.push_back(std::move(*listener));
  }
  std::vector<Status> results(2);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      GroupOptions own = options;
      own.mesh.rank = r;
      const std::vector<PlannedTensor> plan = {tensor("weights", 1000)};
      auto group = joinGroup(listeners[static_cast<std::size_t>(r)], own, plan);
      results[static_cast<std::size_t>(r)] = group.ok() ? act(*group, r) : group.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

TEST(GroupTest, SharesMemoryOnOneMachineAndTakesTcpWhereItCannot) {
  for (const bool can : {true, false}) {
    GroupOptions options;
    options.arena.bytes = can ? std::size_t{1} << 20 : std::size_t{1} << 52;
    const auto results = joinTwo(options, [&](Group& group, int rank) -> Status {
      if ((group.arena != nullptr) != can) return absl::InternalError("the other transport");
      std::vector<float> x(1000, static_cast<float>(rank + 1));
      std::span<float> array(x);
      if (can) {
        TY_ASSIGN_OR_RETURN(const auto memory, group.arena->allocate(1 << 20));
        array = {reinterpret_cast<float*>(memory.data()), 1000};
        std::fill(array.begin(), array.end(), static_cast<float>(rank + 1));
      }
      TY_RETURN_IF_ERROR(group.collective->allReduce(arrayOf(array), Reduction::kAverage));
      return array[999] == 1.5f ? absl::OkStatus() : absl::InternalError("a wrong average");
    });
    for (const Status& result : results) EXPECT_TRUE(result.ok()) << result;
  }
}

// In shared memory an all-reduce reads and writes (P - 1)/P of the array in two meetings.
TEST(GroupTest, SharedMemoryCostsWhatItShould) {
  GroupOptions options;
  options.arena.bytes = 1 << 20;
  const auto results = joinTwo(options, [&](Group& group, int) -> Status {
    TY_ASSIGN_OR_RETURN(const auto memory, group.arena->allocate(8000));
    const Totals before = group.collective->totals();
    TY_RETURN_IF_ERROR(group.collective->allReduce({memory.data(), 2000}, Reduction::kSum));
    const Totals after = group.collective->totals();
    if (after.rounds - before.rounds != 2 || after.bytes_received - before.bytes_received != 4000 ||
        after.bytes_sent - before.bytes_sent != 4000) {
      return absl::InternalError("other costs");
    }
    return absl::OkStatus();
  });
  for (const Status& result : results) EXPECT_TRUE(result.ok()) << result;
}

}  // namespace
}  // namespace trainyard::runtime::collective
