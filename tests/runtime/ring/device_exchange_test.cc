// DeviceRanks as threads, each with a device of its own that is imitated: the host cannot touch its
// memory.
#include <atomic>
#include <cmath>
#include <functional>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/ring/exchange.h"
#include "tests/runtime/collective/fake_device.h"

namespace trainyard::runtime::ring {
namespace {

using collective::testing::FakeDevices;
using collective::testing::FakeMemory;
using collective::testing::Fault;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Against hangs only.
constexpr Duration kLimit = std::chrono::seconds(60);

const std::vector<collective::PlannedTensor> kDeviceTensors = {{"d", ElementType::kFloat32, 5},
                                                               {"c", ElementType::kFloat32, 70'000},
                                                               {"b", ElementType::kFloat32, 1},
                                                               {"a", ElementType::kFloat32, 300}};
// The first two are buckets of their own.
constexpr collective::BucketSizes kDeviceSizes = {64, 4096};

// Of which no two orders of adding give the same bits.
std::vector<float> valuesOf(int rank, std::size_t tensor, int step) {
  std::vector<float> values(static_cast<std::size_t>(kDeviceTensors[tensor].elements));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto number =
        static_cast<float>((i * 31 + tensor * 7 + static_cast<std::size_t>(step)) % 97);
    values[i] = std::ldexp(1.0F + number / 97.0F, rank * 9 - 9);
  }
  return values;
}

struct DeviceRanks {
  explicit DeviceRanks(int size) : memories(static_cast<std::size_t>(size)) {
    place.addresses.resize(static_cast<std::size_t>(size));
    exchanges.resize(static_cast<std::size_t>(size));
    for (int r = 0; r < size; ++r) {
      auto& memory = memories[static_cast<std::size_t>(r)];
      memory = std::make_shared<FakeMemory>();
      ExchangeOptions& options = options_of.emplace_back();
      options.token = "token";
      options.buckets = kDeviceSizes;
      options.device.library = devices.library();
      options.device.memory = memory;
      options.device.identity = "GPU-" + std::to_string(r);
    }
  }
  // Exchanges of these options; a group of them, anew each time.
  void open() {
    for (std::size_t r = 0; r < exchanges.size(); ++r) {
      auto made =
          Exchange::make(options_of[r], tensors, [this](std::int64_t) { return cancel.load(); });
      ASSERT_TRUE(made.ok()) << made.status();
      place.addresses[r] = {options_of[r].bind, (*made)->port()};
      exchanges[r] = std::move(*made);
    }
  }
  // `act` for each rank in a thread of its own, in the next group; what it returned.
  std::vector<Status> run(const std::function<Status(Exchange&, int)>& act) {
    if (!exchanges[0]) open();
    ++place.epoch;
    std::vector<Status> results(exchanges.size());
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < exchanges.size(); ++r) {
      threads.emplace_back([&, r] {
        RingPlace own = place;
        own.rank = static_cast<int>(r);
        results[r] = exchanges[r]->join(own);
        if (results[r].ok()) results[r] = act(*exchanges[r], own.rank);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }

  std::vector<collective::PlannedTensor> tensors = kDeviceTensors;
  FakeDevices devices;
  std::vector<std::shared_ptr<FakeMemory>> memories;  // by rank, as the next
  std::vector<ExchangeOptions> options_of;
  std::vector<std::unique_ptr<Exchange>> exchanges;
  RingPlace place;
  std::atomic<bool> cancel = false;
};

void expectOk(const std::vector<Status>& results) {
  for (const Status& result : results) EXPECT_TRUE(result.ok()) << result;
}

// As a model on the device delivers it: the memory is free again when submit() returns.
void submitFromDevice(Exchange& exchange, FakeMemory& memory, std::size_t tensor,
                      const std::vector<float>& values) {
  const auto held = memory.holding(values);
  exchange.submit(tensor, {reinterpret_cast<const float*>(held.get()), values.size()},
                  /*on_device=*/true);
}

void submitAll(Exchange& exchange, FakeMemory& memory, int rank, int step) {
  for (std::size_t t = 0; t < kDeviceTensors.size(); ++t) {
    const std::vector<float> values = valuesOf(rank, t, step);
    const bool from_host = !exchange.onDevice() || t == 2;
    if (from_host) {
      exchange.submit(t, values);
    } else {
      submitFromDevice(exchange, memory, t, values);
    }
  }
}

// All sums after each of `steps` steps.
Status train(DeviceRanks& ranks, Exchange& exchange, int rank, int steps,
             std::vector<float>& sums) {
  for (int step = 0; step < steps; ++step) {
    exchange.begin(step);
    submitAll(exchange, *ranks.memories[static_cast<std::size_t>(rank)], rank, step);
    TY_ASSIGN_OR_RETURN(const StepTotals totals, exchange.finish({1.5, 10}));
    const auto size = static_cast<double>(ranks.exchanges.size());
    if (totals.loss_sum != 1.5 * size || totals.samples != 10 * size)
      return absl::InternalError("totals");
    for (std::size_t t = 0; t < kDeviceTensors.size(); ++t) {
      const std::span<float> sum = exchange.sum(t);
      sums.insert(sums.end(), sum.begin(), sum.end());
    }
  }
  return absl::OkStatus();
}

// The host's own sums, in the order of ranks.
std::vector<float> expectedSums(int size, int steps) {
  DeviceRanks ranks(size);
  for (ExchangeOptions& options : ranks.options_of) options.deterministic = true;
  std::vector<float> sums;
  expectOk(ranks.run([&](Exchange& exchange, int rank) {
    EXPECT_FALSE(exchange.onDevice()) << "the order of ranks is the host's";
    std::vector<float> others;
    return train(ranks, exchange, rank, steps, rank == 0 ? sums : others);
  }));
  return sums;
}

TEST(DeviceExchangeTest, SumsAreThoseOfTheHostToTheBit) {
  for (const int size : {1, 2, 3}) {
    const std::vector<float> expected = expectedSums(size, 5);
    DeviceRanks ranks(size);
    expectOk(ranks.run([&](Exchange& exchange, int rank) -> Status {
      if (!exchange.onDevice()) return absl::InternalError("not on the device");
      std::vector<float> sums;
      TY_RETURN_IF_ERROR(train(ranks, exchange, rank, 5, sums));
      return sums == expected ? absl::OkStatus() : absl::InternalError("other bits");
    }));
    EXPECT_EQ(ranks.devices.operations(), 5U * 3) << "three buckets";
    for (const auto& memory : ranks.memories) {
      EXPECT_EQ(memory->copies_within, 5 * 3);
      EXPECT_EQ(memory->copies_from_host, 5) << "what was submitted from there, and no more";
    }
  }
}

// Buckets of every size lie in the same memory; all ranks take the same size.
TEST(DeviceExchangeTest, TheSizeOfBucketsIsFoundByTrying) {
  constexpr int kSteps = BucketTuner::kWarmUp + 2 * BucketTuner::kTries + 3;
  const std::vector<float> expected = expectedSums(2, kSteps);
  DeviceRanks ranks(2);
  for (ExchangeOptions& options : ranks.options_of) options.sizes_to_try = {16, 1 << 20};
  expectOk(ranks.run([&](Exchange& exchange, int rank) -> Status {
    std::vector<float> sums;
    TY_RETURN_IF_ERROR(train(ranks, exchange, rank, kSteps, sums));
    return sums == expected ? absl::OkStatus() : absl::InternalError("other bits");
  }));
  EXPECT_EQ(ranks.exchanges[0]->bucketBytes(), ranks.exchanges[1]->bucketBytes());
  EXPECT_GT(ranks.devices.operations(), 0U);
}

TEST(DeviceExchangeTest, NothingChangesNoBit) {
  DeviceRanks ranks(2);
  expectOk(ranks.run([&](Exchange& exchange, int rank) -> Status {
    exchange.begin();
    for (std::size_t t = 0; rank == 0 && t < kDeviceTensors.size(); ++t) {
      const std::vector<float> zeros(static_cast<std::size_t>(kDeviceTensors[t].elements), -0.0F);
      submitFromDevice(exchange, *ranks.memories[0], t, zeros);
    }
    if (rank == 1) exchange.submitNothing();
    TY_RETURN_IF_ERROR(exchange.finish({1, 1}).status());
    for (const float sum : exchange.sum(1)) {
      if (sum != 0 || !std::signbit(sum)) return absl::InternalError("the sign is gone");
    }
    return absl::OkStatus();
  }));
}

// Rows are the host's: they go beside what the devices put together.
TEST(DeviceExchangeTest, TensorsByRowsGoThroughTheHost) {
  DeviceRanks ranks(2);
  ranks.tensors = {{"c", ElementType::kFloat32, 3},
                   {"table", ElementType::kFloat32, 8, 4},
                   {"a", ElementType::kFloat32, 2}};
  expectOk(ranks.run([&](Exchange& exchange, int rank) -> Status {
    if (!exchange.onDevice()) return absl::InternalError("not on the device");
    FakeMemory& memory = *ranks.memories[static_cast<std::size_t>(rank)];
    const auto own = static_cast<float>(rank + 1);
    for (int step = 0; step < 3; ++step) {
      exchange.begin(step);
      submitFromDevice(exchange, memory, 0, {own, 2, 3});
      exchange.submitRows(1, std::vector<std::int64_t>{rank, 3}, std::vector<float>{own, 5, 6, 7});
      submitFromDevice(exchange, memory, 2, {own, own});
      TY_RETURN_IF_ERROR(exchange.finish({1, 1}).status());
      EXPECT_THAT(exchange.sum(0), ElementsAre(3, 4, 6));
      EXPECT_THAT(exchange.sum(1), ElementsAre(1, 5, 2, 5, 0, 0, 12, 14));
      EXPECT_THAT(exchange.sum(2), ElementsAre(3, 3));
    }
    return absl::OkStatus();
  }));
  EXPECT_GT(ranks.devices.operations(), 0U);
}

TEST(DeviceExchangeTest, WithoutAnythingForThemDevicesAreNotUsed) {
  DeviceRanks ranks(2);
  ranks.tensors = {{"table", ElementType::kFloat32, 8, 4}};
  expectOk(ranks.run([&](Exchange& exchange, int rank) -> Status {
    if (exchange.onDevice()) return absl::InternalError("on the device");
    exchange.begin();
    exchange.submitRows(0, std::vector<std::int64_t>{rank}, std::vector<float>{1, 2});
    TY_RETURN_IF_ERROR(exchange.finish({1, 1}).status());
    EXPECT_THAT(exchange.sum(0), ElementsAre(1, 2, 1, 2, 0, 0, 0, 0));
    return absl::OkStatus();
  }));
  EXPECT_EQ(ranks.devices.operations(), 0U);
}

// The rank waits for its own first bucket to be summed before it has the last gradient.
TEST(DeviceExchangeTest, BucketsAreSummedWhileOthersAreFilled) {
  DeviceRanks ranks(2);
  expectOk(ranks.run([&](Exchange& exchange, int rank) -> Status {
    FakeMemory& memory = *ranks.memories[static_cast<std::size_t>(rank)];
    exchange.begin();
    submitFromDevice(exchange, memory, 0, valuesOf(rank, 0, 0));
    if (!ranks.devices.awaitOperations(1, kLimit)) return absl::InternalError("the first bucket");
    submitFromDevice(exchange, memory, 1, valuesOf(rank, 1, 0));
    if (!ranks.devices.awaitOperations(2, kLimit)) return absl::InternalError("the second bucket");
    submitFromDevice(exchange, memory, 2, valuesOf(rank, 2, 0));
    submitFromDevice(exchange, memory, 3, valuesOf(rank, 3, 0));
    return exchange.finish({1, 1}).status();
  }));
}

// What each group of two ranks uses, and that its sums are right.
void expectGroup(DeviceRanks& ranks, bool on_device) {
  expectOk(ranks.run([&](Exchange& exchange, int rank) -> Status {
    if (exchange.onDevice() != on_device) return absl::InternalError("the other memory");
    std::vector<float> sums;
    TY_RETURN_IF_ERROR(train(ranks, exchange, rank, 2, sums));
    const float first = valuesOf(0, 0, 0)[0] + valuesOf(1, 0, 0)[0];
    return sums[0] == first ? absl::OkStatus() : absl::InternalError("sum");
  }));
}

// All together, from group to group.
TEST(DeviceExchangeTest, WithoutADeviceForEveryRankTheHostSums) {
  DeviceRanks ranks(2);
  ranks.memories[1]->is_full = true;
  expectGroup(ranks, false);
  ranks.memories[1]->is_full = false;
  expectGroup(ranks, true);
  ranks.devices.fault = Fault::kRefusesToJoin;
  expectGroup(ranks, false);
  ranks.devices.fault = Fault::kNone;
  expectGroup(ranks, true);
  DeviceRanks same(2);
  same.options_of[1].device.identity = same.options_of[0].device.identity;
  expectGroup(same, false);
  DeviceRanks only_one(2);
  only_one.options_of[0].device = {};
  expectGroup(only_one, false);
}

TEST(DeviceExchangeTest, ARankThatLeavesIsNamed) {
  DeviceRanks ranks(3);
  const auto results = ranks.run([&](Exchange& exchange, int rank) -> Status {
    FakeMemory& memory = *ranks.memories[static_cast<std::size_t>(rank)];
    exchange.begin();
    submitFromDevice(exchange, memory, 0, valuesOf(rank, 0, 0));
    if (rank == 2) {
      // In the middle of the step.
      const bool summed = ranks.devices.awaitOperations(1, kLimit);
      ranks.exchanges[2].reset();
      return summed ? absl::OkStatus() : absl::InternalError("the first bucket");
    }
    for (std::size_t t = 1; t < kDeviceTensors.size(); ++t)
      submitFromDevice(exchange, memory, t, valuesOf(rank, t, 0));
    return exchange.finish({1, 1}).status();
  });
  EXPECT_TRUE(results[2].ok()) << results[2];
  for (const std::size_t r : {0, 1}) EXPECT_EQ(transport::blamedRank(results[r]), 2) << results[r];
}

// The others hear whose it is at once, and all can meet again.
TEST(DeviceExchangeTest, ADeviceThatFailsEndsTheStepOnAllRanks) {
  DeviceRanks ranks(2);
  const auto act = [&](Exchange& exchange, int rank) -> Status {
    std::vector<float> sums;
    return train(ranks, exchange, rank, 2, sums);
  };
  ranks.memories[1]->fails = true;
  for (const Status& result : ranks.run(act)) {
    EXPECT_EQ(transport::blamedRank(result), 1) << result;
    EXPECT_THAT(std::string(result.message()),
                HasSubstr("rank 1: gradients on the GPU: an illegal address"));
  }
  ranks.memories[1]->fails = false;
  ranks.devices.fault = Fault::kRefusesSteps;
  for (const Status& result : ranks.run(act)) {
    EXPECT_EQ(transport::blamedRank(result), 1) << result;
    EXPECT_THAT(std::string(result.message()), HasSubstr("no kernel for this"));
  }
  ranks.devices.fault = Fault::kNone;
  expectGroup(ranks, true);
}

// What was on its way to the host is not in the next group's sums.
TEST(DeviceExchangeTest, AStepThatIsGivenUpLeavesNothing) {
  DeviceRanks ranks(2);
  expectOk(ranks.run([&](Exchange& exchange, int rank) -> Status {
    exchange.begin();
    submitFromDevice(exchange, *ranks.memories[static_cast<std::size_t>(rank)], 0,
                     valuesOf(rank, 0, 50));
    const bool summed = ranks.devices.awaitOperations(1, kLimit);
    exchange.abandon();
    return summed ? absl::OkStatus() : absl::InternalError("the first bucket");
  }));
  expectGroup(ranks, true);
}

}  // namespace
}  // namespace trainyard::runtime::ring
