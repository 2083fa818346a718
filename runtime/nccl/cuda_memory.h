// Memory of a GPU, and whether there is one.
#pragma once

#include <cstddef>
#include <span>

#include "base/core/status.h"

namespace trainyard::runtime::nccl {

// UNAVAILABLE "no GPU: <what CUDA says>" when there is none, or no driver. Begins CUDA in this
// process, which must not fork afterwards.
StatusOr<int> countGpus();

// Bytes in the memory of one GPU. Copies return when they are done. Belongs to one thread at a
// time.
class CudaMemory {
 public:
  // RESOURCE_EXHAUSTED when the GPU has not that much left.
  static StatusOr<CudaMemory> allocate(int device, std::size_t bytes);
  CudaMemory(CudaMemory&& other) noexcept;
  CudaMemory& operator=(CudaMemory&&) = delete;
  ~CudaMemory();

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  // Preconditions: no more than bytes().
  Status copyFrom(std::span<const std::byte> host);
  Status copyTo(std::span<std::byte> host) const;

 private:
  CudaMemory(int device, std::byte* data, std::size_t bytes)
      : device_(device), data_(data), bytes_(bytes) {}

  int device_;
  std::byte* data_;
  std::size_t bytes_;
};

}  // namespace trainyard::runtime::nccl
