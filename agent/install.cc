#include "agent/install.h"

#include <system_error>

#include "fmt/format.h"

namespace trainyard::agent {

Status install(const std::filesystem::path& from, const std::filesystem::path& to) {
  using std::filesystem::copy_options;
  std::error_code error;
  std::filesystem::create_directories(to, error);
  if (!error) {
    std::filesystem::copy(from, to, copy_options::recursive | copy_options::overwrite_existing,
                          error);
  }
  if (!error) return absl::OkStatus();
  return errnoStatus(error.value(), fmt::format("install {} to {}", from.native(), to.native()));
}

}  // namespace trainyard::agent
