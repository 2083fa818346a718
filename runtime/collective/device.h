// What a device's maker has for collective operations on the device's memory, as far as
// device_collective.h needs it. NCCL's is runtime/nccl.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "base/core/status.h"
#include "runtime/collective/collective.h"

namespace trainyard::runtime::collective {

// One of several things that all ranks begin together. Arrays lie in the device's memory; `from`
// and `to` may be the same, or one the rank's own part of the other, and do not overlap otherwise.
struct DeviceStep {
  enum class Kind {
    kAllReduce,      // to = reduction over all ranks' from
    kReduce,         // the same, at rank `peer` only
    kReduceScatter,  // from: size() times to; to = the rank's part of the reduction
    kAllGather,      // to: all ranks' from, in the order of ranks
    kBroadcast,      // to = from of rank `peer`
    kSend,           // from goes to rank `peer`, which receives as much
    kReceive,        // to comes from rank `peer`
    kCopy,           // to = from, on this rank
  };
  Kind kind = Kind::kAllReduce;
  Array from;
  Array to;
  Reduction reduction = Reduction::kSum;
  int peer = 0;
};

// One rank's membership. Belongs to one thread at a time.
class DeviceCommunicator {
 public:
  // Ends the membership in good order, unless it was aborted.
  virtual ~DeviceCommunicator() = default;
  // Begins the steps, all at once, and returns without waiting for them or for other ranks.
  // Precondition: the last poll() said true.
  virtual Status enqueue(std::span<const DeviceStep> steps) = 0;
  // Whether everything begun has ended, the joining included. Does not wait. An error of the device
  // or of its network, that of another rank included, as soon as it is known.
  virtual StatusOr<bool> poll() = 0;
  // Ends what is under way, unfinished. Nothing but the destructor is called afterwards.
  virtual void abort() = 0;
};

// What ranks find each other by.
using DeviceGroupId = std::array<std::byte, 128>;

class DeviceLibrary {
 public:
  virtual ~DeviceLibrary() = default;
  // On one rank; the others are given it.
  virtual StatusOr<DeviceGroupId> makeId() = 0;
  // Begins to join and returns without waiting for other ranks; poll() says when it is done.
  virtual StatusOr<std::unique_ptr<DeviceCommunicator>> join(const DeviceGroupId& id, int rank,
                                                             int size) = 0;
};

}  // namespace trainyard::runtime::collective
