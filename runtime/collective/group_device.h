// Whether the ranks of a group put their arrays together in the memory of their devices (GPUs):
// only when every rank has one, and no two have the same.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "runtime/collective/device.h"
#include "runtime/collective/device_memory.h"

namespace trainyard::runtime::collective {

// What one rank brings.
struct GroupDevice {
  std::shared_ptr<DeviceLibrary> library;  // null: it has none, as the next
  std::shared_ptr<DeviceMemory> memory;
  std::string identity;  // of the device, the same wherever it is seen from: "GPU-0f3a..."
  // Where it computes on a device and has no library all the same: why.
  std::string missing;
};

// What a rank says of it to the others.
std::string offerOf(const GroupDevice& device);

struct DeviceVerdict {
  bool used = false;
  std::string reason;  // why not, for people; empty where no rank computes on a device
};
// Of the offers of all ranks, by rank. Pure: all ranks come to the same.
DeviceVerdict decideOnDevices(std::span<const std::string> offers);

}  // namespace trainyard::runtime::collective
