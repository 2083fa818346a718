// What a worker computes on (training.device). Free of torch and of protobuf.
#pragma once

#include <string>

#include "base/core/status.h"

namespace trainyard::runtime {

// What this process could compute on beside the processor.
struct GpuSupport {
  bool built = false;  // this LibTorch is one for GPUs
  int visible = 0;
};
GpuSupport gpuSupport();

struct ComputeDevice {
  std::string name;    // LibTorch's name of a GPU, "cuda:1"; empty: the processor
  std::string reason;  // for the log: what was chosen, and why
  int number = 0;      // of the GPU, as CUDA counts those that are visible
};
// `wanted` is Auto, CPU or GPU. Processes of one machine take its GPUs in turns: the one with
// `local_rank` (0 for the first) that which has this number, and again from 0 where there are not
// as many. INVALID_ARGUMENT: a GPU is wanted where there is none.
StatusOr<ComputeDevice> chooseDevice(const std::string& wanted, const GpuSupport& gpus,
                                     int local_rank);

// How GPUs compute in this process: 32-bit floats that are not shortened on the way, and with
// `deterministic` algorithms that give the same bits each time.
void setGpuArithmetic(bool deterministic);

}  // namespace trainyard::runtime
