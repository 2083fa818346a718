// What an all-reduce can use of the GPU that a worker computes on.
#pragma once

#include "runtime/collective/group_device.h"
#include "runtime/model/device.h"

namespace trainyard::runtime {

// Nothing for a worker on the processor; says why where there is a GPU that cannot be used.
collective::GroupDevice exchangeDevice(const ComputeDevice& device);

}  // namespace trainyard::runtime
