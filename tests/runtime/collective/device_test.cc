// Collective operations on a device that is this process's memory: what ranks ask of the device's
// library, and what they make of its failures. (Ranks that really die are in fault_test.cc, a real
// library in tests/runtime/nccl.)
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <thread>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/collective/device_collective.h"
#include "runtime/collective/message_collective.h"
#include "runtime/transport/in_process.h"
#include "tests/runtime/collective/fake_device.h"

namespace trainyard::runtime::collective {
namespace {

using collective::testing::FakeDevices;
using collective::testing::Fault;
using ::testing::HasSubstr;
using transport::blamedRank;
using transport::InProcessGroup;

// What each rank returned.
using Results = std::vector<Status>;
using Act = std::function<Status(Collective&)>;

Results onThreads(int ranks, const std::function<Status(int)>& be) {
  Results results(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] { results[static_cast<std::size_t>(r)] = be(r); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

Results onDevice(FakeDevices& device, int ranks, const Act& act,
                 const DeviceOptions& options = {}) {
  const auto hub = InProcessGroup::create(ranks);
  return onThreads(ranks, [&](int r) -> Status {
    const auto library = device.library();
    auto collective = makeDeviceCollective(hub->join(r), *library, options);
    return collective.ok() ? act(**collective) : collective.status();
  });
}

// Every operation on n elements; appends what is specified of each result to `out`.
Status everything(Collective& c, std::int64_t n, std::vector<float>& out) {
  const auto fresh = [&] {
    std::vector<float> x(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<float>((static_cast<int>(i) * 7 + c.rank() * 13) % 31 - 15);
    }
    return x;
  };
  const auto keep = [&](const std::vector<float>& x) { out.insert(out.end(), x.begin(), x.end()); };
  for (const Reduction reduction :
       {Reduction::kSum, Reduction::kAverage, Reduction::kMin, Reduction::kMax}) {
    std::vector<float> x = fresh();
    TY_RETURN_IF_ERROR(c.allReduce(arrayOf(x), reduction));
    keep(x);
    x = fresh();
    TY_RETURN_IF_ERROR(c.reduceScatter(arrayOf(x), reduction));
    const Range own = sliceOf(n, c.rank(), c.size());
    keep({x.begin() + own.begin, x.begin() + own.end});
  }
  std::vector<std::int64_t> counts;
  for (int r = 0; r < c.size(); ++r) counts.push_back(sliceOf(n, r, c.size()).size());
  std::vector<float> x = fresh();
  TY_RETURN_IF_ERROR(c.allGather(arrayOf(x), counts));
  keep(x);
  x = fresh();
  TY_RETURN_IF_ERROR(c.broadcast(arrayOf(x), c.size() - 1));
  keep(x);
  x = fresh();
  std::vector<float> y(static_cast<std::size_t>(counts[static_cast<std::size_t>(c.rank())]) *
                       static_cast<std::size_t>(c.size()));
  const std::vector<std::int64_t> received(static_cast<std::size_t>(c.size()),
                                           counts[static_cast<std::size_t>(c.rank())]);
  TY_RETURN_IF_ERROR(c.allToAll(arrayOf(x), counts, arrayOf(y), received, n * c.size()));
  keep(y);
  return c.barrier();
}

TEST(DeviceTest, EveryOperationGivesWhatMessagesGive) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const std::int64_t n : {0, 1, 10, 12}) {
      FakeDevices device;
      std::vector<std::vector<float>> on_device(static_cast<std::size_t>(ranks));
      std::vector<std::vector<float>> by_message = on_device;
      const Results results = onDevice(device, ranks, [&](Collective& c) {
        return everything(c, n, on_device[static_cast<std::size_t>(c.rank())]);
      });
      for (const Status& status : results) ASSERT_TRUE(status.ok()) << status;
      const auto hub = InProcessGroup::create(ranks);
      const Results reference = onThreads(ranks, [&](int r) {
        const auto c = makeMessageCollective(hub->join(r), {});
        return everything(*c, n, by_message[static_cast<std::size_t>(r)]);
      });
      for (const Status& status : reference) ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(on_device, by_message) << ranks << " ranks, " << n << " elements";
    }
  }
}

TEST(DeviceTest, EqualPartsAreOneOperationOfTheLibrary) {
  FakeDevices device;
  const Results results = onDevice(device, 3, [&](Collective& c) -> Status {
    std::vector<float> x(12, 1.0f);
    TY_RETURN_IF_ERROR(c.reduceScatter(arrayOf(x), Reduction::kSum));
    TY_RETURN_IF_ERROR(c.allGather(arrayOf(x), std::vector<std::int64_t>(3, 4)));
    TY_RETURN_IF_ERROR(c.barrier());
    EXPECT_EQ(c.totals().operations, 3u);
    EXPECT_EQ(c.totals().rounds, 3u * 2) << "meetings of three ranks";
    return absl::OkStatus();
  });
  for (const Status& status : results) EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(device.operations(), 2u) << "a barrier asks nothing of the device";
}

TEST(DeviceTest, ARankInAnotherOperationIsFoundBeforeTheDeviceBegins) {
  FakeDevices device;
  const Results results = onDevice(device, 3, [&](Collective& c) -> Status {
    std::vector<float> x(c.rank() == 1 ? 8 : 12, 1.0f);
    const Status first = c.allReduce(arrayOf(x), Reduction::kSum);
    EXPECT_EQ(c.allReduce(arrayOf(x), Reduction::kSum), first) << "stays failed";
    return first;
  });
  bool said = false;
  for (const Status& status : results) {
    EXPECT_FALSE(status.ok());
    said |= status.code() == absl::StatusCode::kFailedPrecondition &&
            std::string(status.message()).find("of 8 float32") != std::string::npos;
  }
  EXPECT_TRUE(said) << results[0];
  EXPECT_EQ(device.operations(), 0u);
  for (int r = 0; r < 3; ++r) EXPECT_TRUE(device.aborted(r));
}

TEST(DeviceTest, ARankThatDoesNotComeIsNamed) {
  FakeDevices device;
  std::mutex mutex;
  std::condition_variable changed;
  int failed = 0;
  DeviceOptions options;
  options.timeout = std::chrono::seconds(2);
  const Results results = onDevice(
      device, 3,
      [&](Collective& c) -> Status {
        std::vector<float> x(4);
        std::unique_lock lock(mutex);
        if (c.rank() == 2) {
          changed.wait(lock, [&] { return failed == 2; });
          return absl::OkStatus();
        }
        lock.unlock();
        const Status status = c.allReduce(arrayOf(x), Reduction::kSum);
        lock.lock();
        ++failed;
        changed.notify_all();
        return status;
      },
      options);
  for (const int r : {0, 1}) {
    const Status& status = results[static_cast<std::size_t>(r)];
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 2 was silent")) << r;
    EXPECT_EQ(blamedRank(status), 2);
    EXPECT_TRUE(device.aborted(r));
  }
}

// How all ranks end when the device of one, or of all, does this.
Results failing(Fault fault, DeviceOptions options = {}) {
  FakeDevices device(fault);
  Results results = onDevice(
      device, 3,
      [](Collective& c) {
        std::vector<float> x(4);
        return c.allReduce(arrayOf(x), Reduction::kSum);
      },
      options);
  const bool joined = fault != Fault::kNoId && fault != Fault::kRefusesToJoin;
  for (int r = 0; joined && r < 3; ++r) EXPECT_TRUE(device.aborted(r)) << r;
  return results;
}

TEST(DeviceTest, AnErrorOfOneDeviceEndsTheOperationOnAllRanks) {
  for (const auto& [fault, rank, words] :
       {std::tuple(Fault::kNoId, 0, "rank 0: forming the device's group: no interface"),
        std::tuple(Fault::kRefusesToJoin, 1,
                   "rank 1: forming the device's group: two ranks on one device"),
        std::tuple(
            Fault::kRefusesSteps, 1,
            "rank 1: all_reduce sum of 4 float32 (direct, operation 0): no kernel for this")}) {
    for (const Status& status : failing(fault)) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(words));
      EXPECT_EQ(blamedRank(status), rank) << status;
      // What a group can go on without, in another form.
      const bool is_formed = fault == Fault::kRefusesSteps;
      EXPECT_EQ(absl::IsAborted(status) && !is_formed, !is_formed) << status;
    }
  }
}

TEST(DeviceTest, AnErrorWhileTheDeviceWorksNamesTheOperation) {
  for (const Status& status : failing(Fault::kFails)) {
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("all_reduce sum of 4 float32 (direct, operation 0): unhandled error"));
  }
}

TEST(DeviceTest, ADeviceThatIsNeverDoneIsGivenUpAtTheDeadline) {
  DeviceOptions options;
  options.timeout = std::chrono::seconds(1);
  options.grace = std::chrono::seconds(60);
  for (const Status& status : failing(Fault::kNeverDone, options)) {
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("not done on the device after 1.0 s, though every rank answers"));
    EXPECT_FALSE(blamedRank(status) && status.code() == absl::StatusCode::kDeadlineExceeded);
  }
}

TEST(DeviceTest, ArgumentsThatCannotBeAreRefusedAndHarmNobody) {
  FakeDevices device;
  const Results results = onDevice(device, 2, [](Collective& c) -> Status {
    std::vector<float> x(4);
    EXPECT_EQ(c.broadcast(arrayOf(x), 2).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(c.allGather(arrayOf(x), std::vector<std::int64_t>{1, 2}).code(),
              absl::StatusCode::kInvalidArgument);
    return c.allReduce(arrayOf(x), Reduction::kSum);
  });
  for (const Status& status : results) EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace trainyard::runtime::collective
