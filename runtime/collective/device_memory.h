// The memory of a device (a GPU) beside that of the host, as far as whoever brings arrays to a
// device's collective needs it. CUDA's is runtime/nccl.
#pragma once

#include <cstddef>
#include <memory>

#include "base/core/status.h"

namespace trainyard::runtime::collective {

// Thread-safe. Addresses of the device's memory are for it and for the device's library alone: the
// host must not follow them.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  // In the device's memory; freed with the last copy of the result, before the DeviceMemory.
  // RESOURCE_EXHAUSTED when there is not that much left.
  virtual StatusOr<std::shared_ptr<std::byte>> allocate(std::size_t bytes) = 0;
  // In the host's memory, where the device copies from and to fast. The same otherwise.
  virtual StatusOr<std::shared_ptr<std::byte>> allocateOnHost(std::size_t bytes) = 0;

  // These return when it is done. They wait for nothing else that the device has to do: what they
  // copy must be there.
  virtual Status copyWithin(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  virtual Status copyFromHost(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  // Begins a copy to memory of allocateOnHost().
  virtual Status startToHost(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  // Until every copy that startToHost() began is done.
  virtual Status finishToHost() = 0;
};

}  // namespace trainyard::runtime::collective
