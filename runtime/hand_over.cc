#include "runtime/hand_over.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "fmt/format.h"
#include "runtime/model/model.h"

namespace trainyard::runtime {

bool needsLibTorch(const v1::ModelSpec& model, v1::Role role) {
  if (model.name() == "torchscript") return true;
  return role == v1::ROLE_WORKER && !(model.simulated_step_seconds() > 0);
}

Status haveLibTorch(char** argv) {
  if (hasLibTorch()) return absl::OkStatus();
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string other = self.string() + "-torch";
  if (!error) ::execv(other.c_str(), argv);
  return withClass(errnoStatus(error ? error.value() : errno, other), FailureClass::kPermanent);
}

}  // namespace trainyard::runtime
