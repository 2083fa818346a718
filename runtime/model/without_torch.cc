// What the rest of runtime/model asks of LibTorch, for programs that are linked without it.
#include <stdexcept>

#include "runtime/model/device.h"
#include "runtime/model/device_network.h"
#include "runtime/model/libtorch.h"
#include "runtime/model/torchscript.h"

namespace trainyard::runtime {
namespace {

constexpr char kWithout[] = "this program is linked without LibTorch";

}  // namespace

std::unique_ptr<Network> makeDeviceNetwork(const std::vector<std::vector<std::int64_t>>&,
                                           const std::vector<LayerSpec>&, std::uint64_t,
                                           const std::string&) {
  throw std::runtime_error(kWithout);
}

StatusOr<Script> loadScript(const std::string&, std::uint64_t, const std::string&) {
  return absl::UnimplementedError(kWithout);
}

std::string torchVersion() {
  return {};
}

void setTorchThreads(int) {}

GpuSupport gpuSupport() {
  return {};
}

void setGpuArithmetic(bool) {}

}  // namespace trainyard::runtime
