#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/cuda.h>
#include <torch/version.h>

#include "runtime/model/device.h"
#include "runtime/model/libtorch.h"

namespace trainyard::runtime {

std::string torchVersion() {
  return TORCH_VERSION;
}

void setTorchThreads(int n) {
  at::set_num_threads(n);
}

GpuSupport gpuSupport() {
#ifdef TRAINYARD_TORCH_CUDA
  constexpr bool kBuilt = true;
#else
  constexpr bool kBuilt = false;
#endif
  GpuSupport support{kBuilt, 0};
  if (torch::cuda::is_available()) support.visible = static_cast<int>(torch::cuda::device_count());
  return support;
}

void setGpuArithmetic(bool deterministic) {
  at::globalContext().setAllowTF32CuDNN(false);
  at::globalContext().setAllowTF32CuBLAS(false);
  at::globalContext().setBenchmarkCuDNN(false);
  at::globalContext().setDeterministicCuDNN(deterministic);
}

}  // namespace trainyard::runtime
