#include "base/process/new_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <string>

#include "fmt/format.h"

namespace trainyard {
namespace {

constexpr std::size_t kRandom = 6;  // letters that mkostemp() chooses

}  // namespace

StatusOr<NewFile> createBeside(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  std::string name = (folder / fmt::format(".{}.XXXXXX", path.filename().native())).native();
  NewFile file;
  file.fd = UniqueFd(::mkostemp(name.data(), O_CLOEXEC));
  if (!file.fd.valid()) return errnoStatus(errno, fmt::format("create {}", name));
  file.path = name;
  return file;
}

std::optional<std::string> madeFor(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (!name.starts_with('.') || dot < 2 || dot == std::string_view::npos) return std::nullopt;
  const std::string_view random = name.substr(dot + 1);
  const bool is_random =
      random.size() == kRandom && std::all_of(random.begin(), random.end(),
                                              [](unsigned char c) { return std::isalnum(c) != 0; });
  if (!is_random) return std::nullopt;
  return std::string(name.substr(1, dot - 1));
}

}  // namespace trainyard
