#include "runtime/nccl/cuda_memory.h"

#include <cuda_runtime.h>

#include <utility>

#include "base/core/check.h"
#include "fmt/format.h"
#include "runtime/nccl/internal/cuda_status.h"

namespace trainyard::runtime::nccl {

StatusOr<int> countGpus() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess)
    return absl::UnavailableError(fmt::format("no GPU: {}", cudaGetErrorString(error)));
  if (count == 0) return absl::UnavailableError("no GPU: CUDA counts none");
  return count;
}

StatusOr<CudaMemory> CudaMemory::allocate(int device, std::size_t bytes) {
  TY_RETURN_IF_ERROR(internal::cudaStatus(cudaSetDevice(device), "cudaSetDevice"));
  void* data = nullptr;
  TY_RETURN_IF_ERROR(internal::cudaStatus(cudaMalloc(&data, bytes), "cudaMalloc"));
  return CudaMemory(device, static_cast<std::byte*>(data), bytes);
}

CudaMemory::CudaMemory(CudaMemory&& other) noexcept
    : device_(other.device_), data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}

CudaMemory::~CudaMemory() {
  if (data_ == nullptr) return;
  (void)cudaSetDevice(device_);
  (void)cudaFree(data_);
}

Status CudaMemory::copyFrom(std::span<const std::byte> host) {
  TY_CHECK(host.size() <= bytes_, "no more than there is room for");
  return internal::cudaStatus(cudaMemcpy(data_, host.data(), host.size(), cudaMemcpyHostToDevice),
                              "cudaMemcpy to the GPU");
}

Status CudaMemory::copyTo(std::span<std::byte> host) const {
  TY_CHECK(host.size() <= bytes_, "no more than there is");
  return internal::cudaStatus(cudaMemcpy(host.data(), data_, host.size(), cudaMemcpyDeviceToHost),
                              "cudaMemcpy from the GPU");
}

}  // namespace trainyard::runtime::nccl
