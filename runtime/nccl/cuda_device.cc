#include "runtime/nccl/cuda_device.h"

#include <cuda_runtime.h>

#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "runtime/nccl/internal/cuda_status.h"
#include "runtime/nccl/nccl_library.h"

namespace trainyard::runtime::nccl {
namespace {

using internal::cudaStatus;

class Stream {
 public:
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }
  // It does not wait for the default stream, nor that for it.
  Status open() {
    return cudaStatus(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                      "cudaStreamCreateWithFlags");
  }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class CudaDeviceMemory : public collective::DeviceMemory {
 public:
  explicit CudaDeviceMemory(int device) : device_(device) {}

  Status open() {
    TY_RETURN_IF_ERROR(use());
    TY_RETURN_IF_ERROR(copies_.open());
    return to_host_.open();
  }

  StatusOr<std::shared_ptr<std::byte>> allocate(std::size_t bytes) override {
    TY_RETURN_IF_ERROR(use());
    void* data = nullptr;
    TY_RETURN_IF_ERROR(cudaStatus(cudaMalloc(&data, bytes), "cudaMalloc"));
    return std::shared_ptr<std::byte>(static_cast<std::byte*>(data), [device = device_](void* p) {
      (void)cudaSetDevice(device);
      (void)cudaFree(p);
    });
  }

  StatusOr<std::shared_ptr<std::byte>> allocateOnHost(std::size_t bytes) override {
    TY_RETURN_IF_ERROR(use());
    void* data = nullptr;
    TY_RETURN_IF_ERROR(cudaStatus(cudaMallocHost(&data, bytes), "cudaMallocHost"));
    return std::shared_ptr<std::byte>(static_cast<std::byte*>(data),
                                      [](void* p) { (void)cudaFreeHost(p); });
  }

  Status copyWithin(std::byte* to, const std::byte* from, std::size_t bytes) override {
    return copy(to, from, bytes, cudaMemcpyDeviceToDevice);
  }
  Status copyFromHost(std::byte* to, const std::byte* from, std::size_t bytes) override {
    return copy(to, from, bytes, cudaMemcpyHostToDevice);
  }

  Status startToHost(std::byte* to, const std::byte* from, std::size_t bytes) override {
    TY_RETURN_IF_ERROR(use());
    return cudaStatus(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, to_host_.get()),
                      "cudaMemcpyAsync to the host");
  }
  Status finishToHost() override { return wait(to_host_); }

 private:
  Status use() const { return cudaStatus(cudaSetDevice(device_), "cudaSetDevice"); }
  Status wait(const Stream& stream) const {
    TY_RETURN_IF_ERROR(use());
    return cudaStatus(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
  }
  Status copy(std::byte* to, const std::byte* from, std::size_t bytes, cudaMemcpyKind kind) {
    TY_RETURN_IF_ERROR(use());
    TY_RETURN_IF_ERROR(
        cudaStatus(cudaMemcpyAsync(to, from, bytes, kind, copies_.get()), "cudaMemcpyAsync"));
    return wait(copies_);
  }

  const int device_;
  Stream copies_;  // that are waited for at once
  Stream to_host_;
};

StatusOr<std::string> identityOf(int device) {
  cudaDeviceProp properties;
  TY_RETURN_IF_ERROR(
      cudaStatus(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties"));
  return "GPU-" + absl::BytesToHexString({properties.uuid.bytes, sizeof(properties.uuid.bytes)});
}

}  // namespace

StatusOr<std::unique_ptr<collective::DeviceMemory>> makeCudaDeviceMemory(int device) {
  auto memory = std::make_unique<CudaDeviceMemory>(device);
  TY_RETURN_IF_ERROR(memory->open());
  return memory;
}

StatusOr<collective::GroupDevice> makeGroupDevice(int device) {
  collective::GroupDevice made;
  TY_ASSIGN_OR_RETURN(made.identity, identityOf(device));
  TY_ASSIGN_OR_RETURN(made.memory, makeCudaDeviceMemory(device));
  made.library = makeNcclLibrary(device);
  return made;
}

}  // namespace trainyard::runtime::nccl
