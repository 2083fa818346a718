// CUDA's error codes as a Status.
#pragma once

#include <cuda_runtime.h>

#include <string_view>

#include "base/core/status.h"
#include "fmt/format.h"

namespace trainyard::runtime::nccl::internal {

// What CUDA remembers of this thread's failed calls is for us alone: LibTorch would take it for one
// of its own.
inline void forgetError() {
  (void)cudaGetLastError();
}

// OK, or "<what>: <what CUDA says>".
inline Status cudaStatus(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  forgetError();
  const std::string text = fmt::format("{}: {}", what, cudaGetErrorString(error));
  return error == cudaErrorMemoryAllocation ? absl::ResourceExhaustedError(text)
                                            : absl::InternalError(text);
}

}  // namespace trainyard::runtime::nccl::internal
