// Devices that are this process's memory: a library for collective operations that adds in the
// order of ranks, and memory that the host cannot touch by mistake.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/collective/device.h"
#include "runtime/collective/device_memory.h"

namespace trainyard::runtime::collective::testing {

// What can be wrong with it.
enum class Fault { kNone, kNoId, kRefusesToJoin, kNeverJoins, kRefusesSteps, kFails, kNeverDone };

// Does the steps of all ranks of one group when all have brought theirs. Thread-safe.
class FakeGroup {
 public:
  explicit FakeGroup(int ranks) : ranks_(ranks), brought_(ranks), aborted_(ranks) {}

  // Whether all have brought them now.
  bool bring(int rank, std::span<const DeviceStep> steps);
  void join();
  bool done(std::size_t operations);
  void abort(int rank);
  bool aborted(int rank);

 private:
  const DeviceStep& step(int rank, std::size_t operation, std::size_t at) const {
    return brought_[static_cast<std::size_t>(rank)][operation][at];
  }
  void act(std::size_t operation);
  void deliver(std::size_t operation, int from, const DeviceStep& send);
  void doCollective(std::size_t operation, std::size_t at);
  void reduce(std::size_t operation, std::size_t at, int rank, const Array& to, std::int64_t begin);

  std::mutex mutex_;
  const int ranks_;
  std::vector<std::vector<std::vector<DeviceStep>>> brought_;  // by rank and operation
  std::vector<bool> aborted_;
  int joined_ = 0;
  std::size_t done_ = 0;
};

// The devices of all ranks, group after group. Thread-safe.
class FakeDevices {
 public:
  explicit FakeDevices(Fault fault = Fault::kNone) : fault(fault) {}

  // For one rank. The devices outlive it.
  std::unique_ptr<DeviceLibrary> library();

  // In the newest group.
  bool aborted(int rank);
  // What ranks enqueued at one time counts once, in all groups.
  std::size_t operations();
  bool awaitOperations(std::size_t count, Duration patience);

  // Of rank 1 (kRefuses..., kNeverJoins), of all (else).
  std::atomic<Fault> fault;

 private:
  class Library;
  class Communicator;

  std::shared_ptr<FakeGroup> group(const DeviceGroupId& id, int size);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint8_t ids_ = 0;
  std::map<DeviceGroupId, std::shared_ptr<FakeGroup>> groups_;
  std::shared_ptr<FakeGroup> newest_;
  std::size_t operations_ = 0;
};

// Its memory is mapped twice: the host has no access at the addresses that it hands out, and dies
// of following one. Copies to the host are done by finishToHost(), not before.
class FakeMemory : public DeviceMemory {
 public:
  // `anywhere`: what copyWithin() reads need not be memory of allocate().
  explicit FakeMemory(bool anywhere = false) : anywhere_(anywhere) {}

  StatusOr<std::shared_ptr<std::byte>> allocate(std::size_t bytes) override;
  StatusOr<std::shared_ptr<std::byte>> allocateOnHost(std::size_t bytes) override;
  Status copyWithin(std::byte* to, const std::byte* from, std::size_t bytes) override;
  Status copyFromHost(std::byte* to, const std::byte* from, std::size_t bytes) override;
  Status startToHost(std::byte* to, const std::byte* from, std::size_t bytes) override;
  Status finishToHost() override;

  // A copy of the values in memory of the device.
  std::shared_ptr<std::byte> holding(std::span<const float> values);

  // Of allocate(): none is left.
  std::atomic<bool> is_full = false;
  // Of copyWithin().
  std::atomic<bool> fails = false;
  std::atomic<int> copies_within = 0;
  std::atomic<int> copies_from_host = 0;

 private:
  struct Copy {
    std::byte* to;
    const std::byte* from;
    std::size_t bytes;
  };
  const bool anywhere_;
  std::mutex mutex_;
  std::vector<Copy> to_host_;
};

// Where this process may touch what a FakeMemory's address, or another's, means.
std::byte* hostView(std::byte* address);

}  // namespace trainyard::runtime::collective::testing
