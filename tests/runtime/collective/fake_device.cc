#include "tests/runtime/collective/fake_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "base/core/clock.h"
#include "base/process/unique_fd.h"
#include "gtest/gtest.h"
#include "runtime/tensor/reduce.h"

namespace trainyard::runtime::collective::testing {
namespace {

using Kind = DeviceStep::Kind;

// Both mappings of the memory that is handed out, by the address of the first.
struct Mapping {
  std::byte* alias = nullptr;
  std::size_t bytes = 0;
};
std::mutex mappings_mutex;
std::map<std::byte*, Mapping> mappings;

void copyArray(const Array& from, const Array& to) {
  std::memmove(to.data, from.data, to.bytes());
}

Array viewed(Array array) {
  array.data = hostView(array.data);
  return array;
}

}  // namespace

std::byte* hostView(std::byte* address) {
  const std::lock_guard lock(mappings_mutex);
  auto after = mappings.upper_bound(address);
  if (after == mappings.begin()) return address;
  const auto& [begin, mapping] = *--after;
  const auto offset = static_cast<std::size_t>(address - begin);
  return offset < mapping.bytes ? mapping.alias + offset : address;
}

bool FakeGroup::bring(int rank, std::span<const DeviceStep> steps) {
  const std::lock_guard lock(mutex_);
  auto& own = brought_[static_cast<std::size_t>(rank)];
  own.emplace_back(steps.begin(), steps.end());
  for (DeviceStep& step : own.back()) {
    step.from = viewed(step.from);
    step.to = viewed(step.to);
  }
  const std::size_t operation = own.size() - 1;
  for (const auto& of_rank : brought_) {
    if (of_rank.size() <= operation) return false;
  }
  act(operation);
  ++done_;
  return true;
}

void FakeGroup::join() {
  const std::lock_guard lock(mutex_);
  ++joined_;
}

bool FakeGroup::done(std::size_t operations) {
  const std::lock_guard lock(mutex_);
  return joined_ == ranks_ && done_ >= operations;
}

void FakeGroup::abort(int rank) {
  const std::lock_guard lock(mutex_);
  aborted_[static_cast<std::size_t>(rank)] = true;
}

bool FakeGroup::aborted(int rank) {
  const std::lock_guard lock(mutex_);
  return aborted_[static_cast<std::size_t>(rank)];
}

void FakeGroup::act(std::size_t operation) {
  const std::size_t steps = brought_[0][operation].size();
  for (std::size_t i = 0; i < steps; ++i) {
    if (step(0, operation, i).kind < Kind::kSend) doCollective(operation, i);
  }
  for (int r = 0; r < ranks_; ++r) {
    for (const DeviceStep& s : brought_[static_cast<std::size_t>(r)][operation]) {
      if (s.kind == Kind::kCopy) std::memcpy(s.to.data, s.from.data, s.from.bytes());
      if (s.kind == Kind::kSend) deliver(operation, r, s);
    }
  }
}

void FakeGroup::deliver(std::size_t operation, int from, const DeviceStep& send) {
  for (const DeviceStep& s : brought_[static_cast<std::size_t>(send.peer)][operation]) {
    if (s.kind != Kind::kReceive || s.peer != from) continue;
    ASSERT_EQ(s.to.elements, send.from.elements);
    std::memcpy(s.to.data, send.from.data, s.to.bytes());
  }
}

void FakeGroup::doCollective(std::size_t operation, std::size_t at) {
  const DeviceStep& first = step(0, operation, at);
  for (int r = 0; r < ranks_; ++r) {
    const DeviceStep& own = step(r, operation, at);
    ASSERT_EQ(own.kind, first.kind);
    ASSERT_EQ(own.from.elements, first.from.elements);
    if (own.kind == Kind::kReduceScatter) reduce(operation, at, r, own.to, r * own.to.elements);
    if (own.kind == Kind::kReduce && own.peer == r) reduce(operation, at, r, own.to, 0);
    if (own.kind == Kind::kBroadcast && own.peer != r)
      copyArray(step(own.peer, operation, at).from, own.to);
    for (int q = 0; own.kind == Kind::kAllGather && q < ranks_; ++q) {
      const std::int64_t n = own.from.elements;
      copyArray(own.from, step(q, operation, at).to.slice(r * n, (r + 1) * n));
    }
  }
  if (first.kind != Kind::kAllReduce) return;
  reduce(operation, at, 0, first.to, 0);
  for (int r = 1; r < ranks_; ++r) copyArray(first.to, step(r, operation, at).to);
}

// The ranks' arrays, from `begin` on, into `to`, which may be one of them.
void FakeGroup::reduce(std::size_t operation, std::size_t at, int rank, const Array& to,
                       std::int64_t begin) {
  std::vector<const std::byte*> sources;
  for (int r = 0; r < ranks_; ++r) {
    const Array& from = step(r, operation, at).from;
    sources.push_back(from.slice(begin, begin + to.elements).data);
  }
  const Reduction reduction = step(rank, operation, at).reduction;
  const ReduceOp op = reduction == Reduction::kMin   ? ReduceOp::kMin
                      : reduction == Reduction::kMax ? ReduceOp::kMax
                                                     : ReduceOp::kSum;
  std::byte* const target = to.data;
  reduceAcross(to.type, op, sources, std::span(&target, 1), to.elements);
  if (reduction == Reduction::kAverage) divideElements(to.type, to.data, to.elements, ranks_);
}

class FakeDevices::Communicator : public DeviceCommunicator {
 public:
  Communicator(FakeDevices& devices, std::shared_ptr<FakeGroup> group, int rank)
      : devices_(devices), group_(std::move(group)), rank_(rank) {
    if (devices_.fault != Fault::kNeverJoins || rank_ != 1) group_->join();
  }
  Status enqueue(std::span<const DeviceStep> steps) override {
    if (devices_.fault == Fault::kRefusesSteps && rank_ == 1) {
      return absl::InternalError("no kernel for this");
    }
    ++operations_;
    if (group_->bring(rank_, steps)) {
      const std::lock_guard lock(devices_.mutex_);
      ++devices_.operations_;
      devices_.changed_.notify_all();
    }
    return absl::OkStatus();
  }
  StatusOr<bool> poll() override {
    EXPECT_FALSE(group_->aborted(rank_)) << "nothing is asked after abort()";
    if (devices_.fault == Fault::kFails && operations_ > 0)
      return absl::InternalError("unhandled error");
    if (devices_.fault == Fault::kNeverDone && operations_ > 0) return false;
    return group_->done(operations_);
  }
  void abort() override { group_->abort(rank_); }

 private:
  FakeDevices& devices_;
  const std::shared_ptr<FakeGroup> group_;
  const int rank_;
  std::size_t operations_ = 0;
};

class FakeDevices::Library : public DeviceLibrary {
 public:
  explicit Library(FakeDevices& devices) : devices_(devices) {}
  StatusOr<DeviceGroupId> makeId() override {
    if (devices_.fault == Fault::kNoId) return absl::InternalError("no interface");
    DeviceGroupId id;
    id.fill(std::byte{42});
    const std::lock_guard lock(devices_.mutex_);
    id[0] = std::byte{++devices_.ids_};
    devices_.groups_[id] = nullptr;
    return id;
  }
  StatusOr<std::unique_ptr<DeviceCommunicator>> join(const DeviceGroupId& id, int rank,
                                                     int size) override {
    if (devices_.fault == Fault::kRefusesToJoin && rank == 1) {
      return absl::InternalError("two ranks on one device");
    }
    return std::make_unique<Communicator>(devices_, devices_.group(id, size), rank);
  }

 private:
  FakeDevices& devices_;
};

std::unique_ptr<DeviceLibrary> FakeDevices::library() {
  return std::make_unique<Library>(*this);
}

std::shared_ptr<FakeGroup> FakeDevices::group(const DeviceGroupId& id, int size) {
  const std::lock_guard lock(mutex_);
  EXPECT_TRUE(groups_.contains(id)) << "rank 0's, on every rank";
  std::shared_ptr<FakeGroup>& group = groups_[id];
  if (!group) newest_ = group = std::make_shared<FakeGroup>(size);
  return group;
}

bool FakeDevices::aborted(int rank) {
  const std::lock_guard lock(mutex_);
  return newest_ && newest_->aborted(rank);
}

std::size_t FakeDevices::operations() {
  const std::lock_guard lock(mutex_);
  return operations_;
}

bool FakeDevices::awaitOperations(std::size_t count, Duration patience) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, patience, [&] { return operations_ >= count; });
}

StatusOr<std::shared_ptr<std::byte>> FakeMemory::allocate(std::size_t bytes) {
  if (is_full) return absl::ResourceExhaustedError("out of memory");
  const UniqueFd fd(::memfd_create("device", MFD_CLOEXEC));
  if (fd.get() < 0 || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    return absl::InternalError("no memfd");
  void* const address = ::mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, fd.get(), 0);
  void* const alias = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED || alias == MAP_FAILED) return absl::InternalError("no mapping");
  auto* const begin = static_cast<std::byte*>(address);
  const std::lock_guard lock(mappings_mutex);
  mappings[begin] = {static_cast<std::byte*>(alias), bytes};
  return std::shared_ptr<std::byte>(begin, [](std::byte* mapped) {
    const std::lock_guard erasing(mappings_mutex);
    const Mapping mapping = mappings.at(mapped);
    mappings.erase(mapped);
    ::munmap(mapping.alias, mapping.bytes);
    ::munmap(mapped, mapping.bytes);
  });
}

StatusOr<std::shared_ptr<std::byte>> FakeMemory::allocateOnHost(std::size_t bytes) {
  return std::shared_ptr<std::byte>(new std::byte[bytes], std::default_delete<std::byte[]>());
}

Status FakeMemory::copyWithin(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (fails) return absl::InternalError("an illegal address");
  ++copies_within;
  std::byte* const source = hostView(const_cast<std::byte*>(from));
  EXPECT_TRUE(anywhere_ || source != from) << "not in the device's memory";
  std::memcpy(hostView(to), source, bytes);
  return absl::OkStatus();
}

Status FakeMemory::copyFromHost(std::byte* to, const std::byte* from, std::size_t bytes) {
  ++copies_from_host;
  std::memcpy(hostView(to), from, bytes);
  return absl::OkStatus();
}

Status FakeMemory::startToHost(std::byte* to, const std::byte* from, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  to_host_.push_back({to, from, bytes});
  return absl::OkStatus();
}

Status FakeMemory::finishToHost() {
  const std::lock_guard lock(mutex_);
  for (const Copy& copy : to_host_)
    std::memcpy(copy.to, hostView(const_cast<std::byte*>(copy.from)), copy.bytes);
  to_host_.clear();
  return absl::OkStatus();
}

std::shared_ptr<std::byte> FakeMemory::holding(std::span<const float> values) {
  const auto memory = allocate(values.size_bytes());
  EXPECT_TRUE(memory.ok()) << memory.status();
  std::memcpy(hostView(memory->get()), values.data(), values.size_bytes());
  return *memory;
}

}  // namespace trainyard::runtime::collective::testing
