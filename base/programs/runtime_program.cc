#include "base/programs/runtime_program.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/core/strings.h"
#include "fmt/format.h"

namespace trainyard {
namespace {

constexpr char kScript[] = "torchscript";
constexpr char kProgram[] = "program";  // computes by itself

bool isExecutable(const std::string& path) {
  return ::access(path.c_str(), X_OK) == 0;
}

std::vector<std::string> deviceNames() {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/dev", error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  return names;
}

// "nvidia0", and not "nvidiactl". "dxg" is how a Windows shows its GPUs to a Linux inside.
bool isGpu(const std::string& name) {
  constexpr std::string_view kPrefix = "nvidia";
  if (name == "dxg") return true;
  return name.starts_with(kPrefix) && parseNumber<int>(name.substr(kPrefix.size())).has_value();
}

}  // namespace

LibTorchNeed libTorchNeed(const v1::Training& training, v1::Role role) {
  if (training.model().name() == kScript) return LibTorchNeed::kAlways;
  // Models with tables compute on the processor.
  const bool computes = role == v1::ROLE_WORKER && training.model().name() != kProgram &&
                        training.tables_size() == 0 &&
                        !(training.model().simulated_step_seconds() > 0);
  if (!computes || training.device() == "CPU") return LibTorchNeed::kNone;
  return training.device() == "GPU" ? LibTorchNeed::kAlways : LibTorchNeed::kWhereGpu;
}

bool takesLibTorch(LibTorchNeed need, const TorchPlace& place) {
  if (need == LibTorchNeed::kWhereGpu) return place.has_program && place.has_gpu;
  return need == LibTorchNeed::kAlways;
}

Status libTorchMissing(const v1::Training& training, const std::string& where) {
  const bool script = training.model().name() == kScript;
  return invalidInput(
      script ? "spec.training.model" : "spec.training.device",
      fmt::format("{} needs trainyard-runtime-torch ({}): `make torch` builds it with Debian's "
                  "libtorch-dev, or with another LibTorch (TRAINYARD_TORCH=DIR); in a cluster the "
                  "image trainyard-runtime-torch has it (chart value runtimeTorch.image)",
                  script ? kScript : "GPU", where));
}

std::string torchProgram(const std::string& runtime) {
  return runtime + "-torch";
}

bool showsGpu(const std::vector<std::string>& devices, const char* visible) {
  // What CUDA does with it: numbers and names up to the first that is none; -1 is none.
  const std::string_view shown = visible == nullptr ? "0" : trim(std::string_view(visible));
  if (shown.empty() || shown.starts_with('-') || shown == "void" || shown == "NoDevFiles")
    return false;
  return std::any_of(devices.begin(), devices.end(), isGpu);
}

bool hasGpu(const char* visible) {
  return showsGpu(deviceNames(), visible);
}

StatusOr<std::string> runtimeProgram(const std::string& runtime, const v1::Training& training,
                                     v1::Role role, const char* visible) {
  const LibTorchNeed need = libTorchNeed(training, role);
  if (need == LibTorchNeed::kNone) return runtime;
  const std::string torch = torchProgram(runtime);
  TorchPlace place{.has_program = isExecutable(torch)};
  if (place.has_program && need == LibTorchNeed::kWhereGpu) place.has_gpu = hasGpu(visible);
  if (!takesLibTorch(need, place)) return runtime;
  if (!place.has_program) return libTorchMissing(training, "there is no " + torch);
  return torch;
}

}  // namespace trainyard
