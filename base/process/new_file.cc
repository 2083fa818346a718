#include "base/process/new_file.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "fmt/format.h"

namespace trainyard {

StatusOr<NewFile> createBeside(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  std::string name = (folder / fmt::format(".{}.XXXXXX", path.filename().native())).native();
  NewFile file;
  file.fd = UniqueFd(::mkostemp(name.data(), O_CLOEXEC));
  if (!file.fd.valid()) return errnoStatus(errno, fmt::format("create {}", name));
  file.path = name;
  return file;
}

}  // namespace trainyard
