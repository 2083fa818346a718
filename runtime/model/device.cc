#include "runtime/model/device.h"

#include "fmt/format.h"
#include "runtime/model/libtorch.h"

namespace trainyard::runtime {
namespace {

// Why there is no GPU.
std::string missing(const GpuSupport& gpus) {
  if (torchVersion().empty()) return "this program is linked without LibTorch";
  if (!gpus.built)
    return fmt::format("LibTorch {} is built for processors only here", torchVersion());
  return "no GPU is visible to this process (CUDA_VISIBLE_DEVICES may hide it)";
}

}  // namespace

StatusOr<ComputeDevice> chooseDevice(const std::string& wanted, const GpuSupport& gpus,
                                     int local_rank) {
  if (wanted == "CPU") return ComputeDevice{"", "computing on the processor (training.device)"};
  if (gpus.built && gpus.visible > 0) {
    const int number = local_rank % gpus.visible;
    const std::string name = fmt::format("cuda:{}", number);
    return ComputeDevice{name,
                         fmt::format("computing on {} of {} visible GPU{}", name, gpus.visible,
                                     gpus.visible == 1 ? "" : "s"),
                         number};
  }
  if (wanted == "GPU") return invalidInput("training.device", "GPU, but " + missing(gpus));
  return ComputeDevice{"", "computing on the processor: " + missing(gpus)};
}

}  // namespace trainyard::runtime
