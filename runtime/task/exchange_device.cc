#include "runtime/task/exchange_device.h"

#ifdef TRAINYARD_CUDA
#include "runtime/nccl/cuda_device.h"
#endif

namespace trainyard::runtime {
namespace {

StatusOr<collective::GroupDevice> withNccl([[maybe_unused]] int number) {
#ifdef TRAINYARD_CUDA
  return nccl::makeGroupDevice(number);
#else
  return absl::UnimplementedError("this trainyard-runtime is built without NCCL");
#endif
}

}  // namespace

collective::GroupDevice exchangeDevice(const ComputeDevice& device) {
  if (device.name.empty()) return {};
  auto made = withNccl(device.number);
  if (made.ok()) return *std::move(made);
  collective::GroupDevice none;
  none.missing = std::string(made.status().message());
  return none;
}

}  // namespace trainyard::runtime
