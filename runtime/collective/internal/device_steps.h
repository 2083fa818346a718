// Operations whose parts differ in size, as steps of a device's library, whose own operations of
// that name want equal parts. Pure. Parts without elements are left out.
#pragma once

#include <span>
#include <vector>

#include "runtime/collective/device.h"

namespace trainyard::runtime::collective::internal {

// One reduction per slice where slices differ.
std::vector<DeviceStep> reduceScatterSteps(const Array& array, Reduction reduction, int rank,
                                           int ranks);
// One broadcast per rank where counts differ.
std::vector<DeviceStep> allGatherSteps(const Array& array, std::span<const std::int64_t> counts,
                                       int rank);
std::vector<DeviceStep> allToAllSteps(const Array& send, std::span<const std::int64_t> send_counts,
                                      const Array& receive,
                                      std::span<const std::int64_t> receive_counts, int rank);

}  // namespace trainyard::runtime::collective::internal
