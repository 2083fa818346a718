// Collective operations on a device that is this process's memory: what ranks ask of the device's
// library, and what they make of its failures. (Ranks that really die are in fault_test.cc, a real
// library in tests/runtime/nccl.)
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <numeric>
#include <thread>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/collective/device_collective.h"
#include "runtime/collective/message_collective.h"
#include "runtime/transport/in_process.h"

namespace trainyard::runtime::collective {
namespace {

using ::testing::HasSubstr;
using transport::blamedRank;
using transport::InProcessGroup;
using Kind = DeviceStep::Kind;

// What can be wrong with it.
enum class Fault { kNone, kNoId, kRefusesToJoin, kRefusesSteps, kFails, kNeverDone };

// Does the steps of all ranks when all have brought theirs. Thread-safe.
class FakeDevice {
 public:
  FakeDevice(int ranks, Fault fault)
      : fault(fault), ranks_(ranks), brought_(ranks), aborted_(ranks) {}

  void bring(int rank, std::span<const DeviceStep> steps) {
    std::lock_guard lock(mutex_);
    auto& own = brought_[static_cast<std::size_t>(rank)];
    own.emplace_back(steps.begin(), steps.end());
    const std::size_t group = own.size() - 1;
    for (const auto& of_rank : brought_) {
      if (of_rank.size() <= group) return;
    }
    doGroup(group);
    ++done_;
  }
  void join() {
    std::lock_guard lock(mutex_);
    ++joined_;
  }
  bool done(std::size_t groups) {
    std::lock_guard lock(mutex_);
    return joined_ == ranks_ && done_ >= groups;
  }
  void abort(int rank) {
    std::lock_guard lock(mutex_);
    aborted_[static_cast<std::size_t>(rank)] = true;
  }
  bool aborted(int rank) {
    std::lock_guard lock(mutex_);
    return aborted_[static_cast<std::size_t>(rank)];
  }
  std::size_t groups() {
    std::lock_guard lock(mutex_);
    return done_;
  }

  const Fault fault;

 private:
  const DeviceStep& step(int rank, std::size_t group, std::size_t at) const {
    return brought_[static_cast<std::size_t>(rank)][group][at];
  }

  void doGroup(std::size_t group) {
    const std::size_t steps = brought_[0][group].size();
    for (std::size_t i = 0; i < steps; ++i) {
      if (step(0, group, i).kind < Kind::kSend) doCollective(group, i);
    }
    for (int r = 0; r < ranks_; ++r) {
      for (const DeviceStep& s : brought_[static_cast<std::size_t>(r)][group]) {
        if (s.kind == Kind::kCopy) std::memcpy(s.to.data, s.from.data, s.from.bytes());
        if (s.kind == Kind::kSend) deliver(group, r, s);
      }
    }
  }

  void deliver(std::size_t group, int from, const DeviceStep& send) {
    for (const DeviceStep& s : brought_[static_cast<std::size_t>(send.peer)][group]) {
      if (s.kind != Kind::kReceive || s.peer != from) continue;
      ASSERT_EQ(s.to.elements, send.from.elements);
      std::memcpy(s.to.data, send.from.data, s.to.bytes());
    }
  }

  void doCollective(std::size_t group, std::size_t i) {
    const DeviceStep& first = step(0, group, i);
    for (int r = 0; r < ranks_; ++r) {
      const DeviceStep& own = step(r, group, i);
      ASSERT_EQ(own.kind, first.kind);
      ASSERT_EQ(own.from.elements, first.from.elements);
      if (own.kind == Kind::kReduceScatter) reduce(group, i, r, own.to, r * own.to.elements);
      if (own.kind == Kind::kReduce && own.peer == r) reduce(group, i, r, own.to, 0);
      if (own.kind == Kind::kBroadcast && own.peer != r)
        copy(step(own.peer, group, i).from, own.to);
      for (int q = 0; own.kind == Kind::kAllGather && q < ranks_; ++q) {
        const std::int64_t n = own.from.elements;
        copy(own.from, step(q, group, i).to.slice(r * n, (r + 1) * n));
      }
    }
    if (first.kind != Kind::kAllReduce) return;
    reduce(group, i, 0, first.to, 0);
    for (int r = 1; r < ranks_; ++r) copy(first.to, step(r, group, i).to);
  }

  // The ranks' arrays, from `begin` on, into `to`, which may be one of them.
  void reduce(std::size_t group, std::size_t i, int rank, const Array& to, std::int64_t begin) {
    std::vector<const std::byte*> sources;
    for (int r = 0; r < ranks_; ++r) {
      const Array& from = step(r, group, i).from;
      sources.push_back(from.slice(begin, begin + to.elements).data);
    }
    const Reduction reduction = step(rank, group, i).reduction;
    const ReduceOp op = reduction == Reduction::kMin   ? ReduceOp::kMin
                        : reduction == Reduction::kMax ? ReduceOp::kMax
                                                       : ReduceOp::kSum;
    std::byte* const target = to.data;
    reduceAcross(to.type, op, sources, std::span(&target, 1), to.elements);
    if (reduction == Reduction::kAverage) divideElements(to.type, to.data, to.elements, ranks_);
  }
  static void copy(const Array& from, const Array& to) {
    std::memmove(to.data, from.data, to.bytes());
  }

  std::mutex mutex_;
  const int ranks_;
  std::vector<std::vector<std::vector<DeviceStep>>> brought_;  // by rank and group
  std::vector<bool> aborted_;
  int joined_ = 0;
  std::size_t done_ = 0;
};

class FakeCommunicator : public DeviceCommunicator {
 public:
  FakeCommunicator(FakeDevice& device, int rank) : device_(device), rank_(rank) { device_.join(); }
  Status enqueue(std::span<const DeviceStep> steps) override {
    if (device_.fault == Fault::kRefusesSteps && rank_ == 1) {
      return absl::InternalError("no kernel for this");
    }
    ++groups_;
    device_.bring(rank_, steps);
    return absl::OkStatus();
  }
  StatusOr<bool> poll() override {
    EXPECT_FALSE(device_.aborted(rank_)) << "nothing is asked after abort()";
    if (device_.fault == Fault::kFails && groups_ > 0)
      return absl::InternalError("unhandled error");
    if (device_.fault == Fault::kNeverDone && groups_ > 0) return false;
    return device_.done(groups_);
  }
  void abort() override { device_.abort(rank_); }

 private:
  FakeDevice& device_;
  const int rank_;
  std::size_t groups_ = 0;
};

class FakeLibrary : public DeviceLibrary {
 public:
  explicit FakeLibrary(FakeDevice& device) : device_(device) {}
  StatusOr<DeviceGroupId> makeId() override {
    if (device_.fault == Fault::kNoId) return absl::InternalError("no interface");
    DeviceGroupId id;
    id.fill(std::byte{42});
    return id;
  }
  StatusOr<std::unique_ptr<DeviceCommunicator>> join(const DeviceGroupId& id, int rank,
                                                     int size) override {
    EXPECT_EQ(id, *makeId()) << "rank 0's, on every rank";
    if (device_.fault == Fault::kRefusesToJoin && rank == 1) {
      return absl::InternalError("two ranks on one device");
    }
    return std::make_unique<FakeCommunicator>(device_, rank);
  }

 private:
  FakeDevice& device_;
};

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

Results onDevice(FakeDevice& device, int ranks, const Act& act, const DeviceOptions& options = {}) {
  const auto hub = InProcessGroup::create(ranks);
  return onThreads(ranks, [&](int r) -> Status {
    FakeLibrary library(device);
    auto collective = makeDeviceCollective(hub->join(r), library, options);
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
      FakeDevice device(ranks, Fault::kNone);
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
  FakeDevice device(3, Fault::kNone);
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
  EXPECT_EQ(device.groups(), 2u) << "a barrier asks nothing of the device";
}

TEST(DeviceTest, ARankInAnotherOperationIsFoundBeforeTheDeviceBegins) {
  FakeDevice device(3, Fault::kNone);
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
  EXPECT_EQ(device.groups(), 0u);
  for (int r = 0; r < 3; ++r) EXPECT_TRUE(device.aborted(r));
}

TEST(DeviceTest, ARankThatDoesNotComeIsNamed) {
  FakeDevice device(3, Fault::kNone);
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
  FakeDevice device(3, fault);
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
  FakeDevice device(2, Fault::kNone);
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
