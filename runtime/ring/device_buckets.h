// The gradients of an exchange in the memory of the rank's device, and the host's memory that their
// sums are copied to. Numbered by elements: tensors lie one after the other, and so buckets.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/core/status.h"
#include "runtime/collective/collective.h"
#include "runtime/collective/device_memory.h"

namespace trainyard::runtime::ring {

// put() from one thread, the rest from one.
class DeviceBuckets {
 public:
  // RESOURCE_EXHAUSTED when there is not that much memory.
  static StatusOr<std::unique_ptr<DeviceBuckets>> make(
      std::shared_ptr<collective::DeviceMemory> memory, std::size_t elements);
  ~DeviceBuckets();
  DeviceBuckets(const DeviceBuckets&) = delete;
  DeviceBuckets& operator=(const DeviceBuckets&) = delete;

  // Copies `values`, which lie in the device's memory or in the host's.
  Status put(std::size_t begin, std::span<const float> values, bool on_device);
  // Elements on the device, for its collective.
  collective::Array at(std::size_t begin, std::size_t elements) const;
  // Copies them to the same place on the host; finishToHost() waits for all that was begun.
  Status startToHost(std::size_t begin, std::size_t elements);
  Status finishToHost();
  // All elements on the host.
  std::span<float> onHost() const { return {reinterpret_cast<float*>(host_.get()), elements_}; }

 private:
  DeviceBuckets(std::shared_ptr<collective::DeviceMemory> memory, std::size_t elements);

  const std::shared_ptr<collective::DeviceMemory> memory_;
  const std::size_t elements_;
  std::shared_ptr<std::byte> device_;
  std::shared_ptr<std::byte> host_;
};

}  // namespace trainyard::runtime::ring
