// A GPU as the device of a rank: its memory, and who it is.
#pragma once

#include <memory>

#include "base/core/status.h"
#include "runtime/collective/group_device.h"

namespace trainyard::runtime::nccl {

// Copies on streams of its own, beside what the GPU computes.
StatusOr<std::unique_ptr<collective::DeviceMemory>> makeCudaDeviceMemory(int device);

// GPU number `device` with its memory, NCCL, and its UUID as identity. Errors as of CUDA.
StatusOr<collective::GroupDevice> makeGroupDevice(int device);

}  // namespace trainyard::runtime::nccl
