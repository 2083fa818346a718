#include "runtime/nccl/nccl_library.h"

#include <cuda_runtime.h>
#include <nccl.h>

#include <cstring>
#include <utility>

#include "base/core/check.h"
#include "base/core/clock.h"
#include "base/core/sleep.h"
#include "fmt/format.h"
#include "runtime/nccl/internal/cuda_status.h"

namespace trainyard::runtime::nccl {
namespace {

using collective::Array;
using collective::DeviceGroupId;
using collective::DeviceStep;
using collective::Reduction;
using internal::cudaStatus;

static_assert(sizeof(DeviceGroupId) == sizeof(ncclUniqueId));

// How long a communicator that is no longer needed may take to end in good order.
constexpr Duration kFarewell = std::chrono::seconds(5);
constexpr Duration kPause = std::chrono::milliseconds(1);

// OK also for what a non-blocking communicator has only begun. `comm` may be null.
Status ncclStatus(ncclResult_t result, std::string_view what, ncclComm_t comm) {
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  const char* detail = ncclGetLastError(comm);
  const bool has_detail = detail != nullptr && *detail != '\0';
  const std::string text = fmt::format("{}: {}{}{}", what, ncclGetErrorString(result),
                                       has_detail ? ": " : "", has_detail ? detail : "");
  return result == ncclRemoteError || result == ncclSystemError ? absl::UnavailableError(text)
                                                                : absl::InternalError(text);
}

ncclDataType_t typeOf(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return ncclFloat32;
    case ElementType::kFloat16:
      return ncclFloat16;
    case ElementType::kBFloat16:
      return ncclBfloat16;
    case ElementType::kFloat64:
      return ncclFloat64;
    case ElementType::kInt32:
      return ncclInt32;
    case ElementType::kInt64:
      return ncclInt64;
    case ElementType::kUint8:
      return ncclUint8;
    case ElementType::kInt8:
      return ncclInt8;
    case ElementType::kBool:
      break;
  }
  TY_CHECK(false, "NCCL has the types above");
}

ncclRedOp_t opOf(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return ncclSum;
    case Reduction::kAverage:
      return ncclAvg;
    case Reduction::kMin:
      return ncclMin;
    case Reduction::kMax:
      return ncclMax;
    case Reduction::kProduct:
      return ncclProd;
    case Reduction::kBitAnd:
    case Reduction::kBitOr:
    case Reduction::kBitXor:
      break;
  }
  TY_CHECK(false, "NCCL has the reductions above");
}

class NcclCommunicator : public collective::DeviceCommunicator {
 public:
  NcclCommunicator(int device, cudaStream_t stream) : device_(device), stream_(stream) {}
  NcclCommunicator(const NcclCommunicator&) = delete;

  ~NcclCommunicator() override {
    (void)cudaSetDevice(device_);
    if (comm_ != nullptr) leave();
    (void)cudaStreamDestroy(stream_);
  }

  Status begin(const DeviceGroupId& id, int rank, int size) {
    ncclUniqueId unique;
    std::memcpy(&unique, id.data(), sizeof(unique));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const ncclResult_t begun = ncclCommInitRankConfig(&comm_, size, unique, rank, &config);
    return ncclStatus(begun, "ncclCommInitRankConfig", nullptr);
  }

  Status enqueue(std::span<const DeviceStep> steps) override {
    TY_RETURN_IF_ERROR(cudaStatus(cudaSetDevice(device_), "cudaSetDevice"));
    TY_RETURN_IF_ERROR(ncclStatus(ncclGroupStart(), "ncclGroupStart", comm_));
    Status begun;
    for (const DeviceStep& step : steps) {
      if (begun.ok()) begun = enqueueOne(step);
    }
    // Also after a failure: the thread is in the group until then.
    const Status ended = ncclStatus(ncclGroupEnd(), "ncclGroupEnd", comm_);
    return begun.ok() ? ended : begun;
  }

  StatusOr<bool> poll() override {
    ncclResult_t state = ncclSuccess;
    TY_RETURN_IF_ERROR(
        ncclStatus(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError", comm_));
    TY_RETURN_IF_ERROR(ncclStatus(state, "NCCL", comm_));
    if (state == ncclInProgress) return false;
    TY_RETURN_IF_ERROR(cudaStatus(cudaSetDevice(device_), "cudaSetDevice"));
    const cudaError_t done = cudaStreamQuery(stream_);
    if (done == cudaErrorNotReady) {
      internal::forgetError();
      return false;
    }
    TY_RETURN_IF_ERROR(cudaStatus(done, "cudaStreamQuery"));
    return true;
  }

  void abort() override {
    (void)cudaSetDevice(device_);
    if (comm_ != nullptr) (void)ncclCommAbort(std::exchange(comm_, nullptr));
  }

 private:
  Status enqueueOne(const DeviceStep& step) {
    const ncclDataType_t type = typeOf(step.from.data != nullptr ? step.from.type : step.to.type);
    const ncclRedOp_t op = opOf(step.reduction);
    const void* from = step.from.data;
    void* to = step.to.data;
    const auto sent = static_cast<std::size_t>(step.from.elements);
    const auto received = static_cast<std::size_t>(step.to.elements);
    switch (step.kind) {
      case DeviceStep::Kind::kAllReduce:
        return called(ncclAllReduce(from, to, sent, type, op, comm_, stream_), "ncclAllReduce");
      case DeviceStep::Kind::kReduce:
        return called(ncclReduce(from, to, sent, type, op, step.peer, comm_, stream_),
                      "ncclReduce");
      case DeviceStep::Kind::kReduceScatter:
        return called(ncclReduceScatter(from, to, received, type, op, comm_, stream_),
                      "ncclReduceScatter");
      case DeviceStep::Kind::kAllGather:
        return called(ncclAllGather(from, to, sent, type, comm_, stream_), "ncclAllGather");
      case DeviceStep::Kind::kBroadcast:
        return called(ncclBroadcast(from, to, sent, type, step.peer, comm_, stream_),
                      "ncclBroadcast");
      case DeviceStep::Kind::kSend:
        return called(ncclSend(from, sent, type, step.peer, comm_, stream_), "ncclSend");
      case DeviceStep::Kind::kReceive:
        return called(ncclRecv(to, received, type, step.peer, comm_, stream_), "ncclRecv");
      case DeviceStep::Kind::kCopy:
        return cudaStatus(
            cudaMemcpyAsync(to, from, step.from.bytes(), cudaMemcpyDeviceToDevice, stream_),
            "cudaMemcpyAsync");
    }
    TY_CHECK(false, "the steps above are all there are");
  }

  Status called(ncclResult_t result, std::string_view what) const {
    return ncclStatus(result, what, comm_);
  }

  // In good order where the other ranks are there for it, else by force.
  void leave() {
    const TimePoint deadline = systemClock().now() + kFarewell;
    ncclResult_t state = ncclCommFinalize(comm_);
    while (state == ncclInProgress && systemClock().now() < deadline) {
      sleepUntil(systemClock().now() + kPause);
      const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
      if (asked != ncclSuccess) state = asked;
    }
    if (state == ncclSuccess) {
      (void)ncclCommDestroy(std::exchange(comm_, nullptr));
    } else {
      abort();
    }
  }

  const int device_;
  const cudaStream_t stream_;
  ncclComm_t comm_ = nullptr;
};

class NcclLibrary : public collective::DeviceLibrary {
 public:
  explicit NcclLibrary(int device) : device_(device) {}

  StatusOr<DeviceGroupId> makeId() override {
    ncclUniqueId unique;
    TY_RETURN_IF_ERROR(ncclStatus(ncclGetUniqueId(&unique), "ncclGetUniqueId", nullptr));
    DeviceGroupId id;
    std::memcpy(id.data(), &unique, sizeof(unique));
    return id;
  }

  StatusOr<std::unique_ptr<collective::DeviceCommunicator>> join(const DeviceGroupId& id, int rank,
                                                                 int size) override {
    TY_RETURN_IF_ERROR(cudaStatus(cudaSetDevice(device_), "cudaSetDevice"));
    cudaStream_t stream = nullptr;
    TY_RETURN_IF_ERROR(cudaStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                                  "cudaStreamCreateWithFlags"));
    auto communicator = std::make_unique<NcclCommunicator>(device_, stream);
    TY_RETURN_IF_ERROR(communicator->begin(id, rank, size));
    return communicator;
  }

 private:
  const int device_;
};

}  // namespace

std::unique_ptr<collective::DeviceLibrary> makeNcclLibrary(int device) {
  return std::make_unique<NcclLibrary>(device);
}

std::string ncclVersion() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return "unknown";
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace trainyard::runtime::nccl
