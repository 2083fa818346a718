// A file that nobody else has, to be filled before it appears under its name.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/core/status.h"
#include "base/process/unique_fd.h"

namespace trainyard {

struct NewFile {
  UniqueFd fd;  // for writing; mode 0600
  std::filesystem::path path;
};

// Creates a hidden file in the folder of `path`, for which it is made. Its name is random and taken
// by nobody: not by another thread, nor by a process of the same number in another container that
// shares the folder. The caller renames, links or removes it. Errors name the file.
StatusOr<NewFile> createBeside(const std::filesystem::path& path);

// The name for which a file called `name` was made so, where it was: one whose maker was killed
// stays behind.
std::optional<std::string> madeFor(std::string_view name);

}  // namespace trainyard
