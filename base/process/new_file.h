// A file that nobody else has, to be filled before it appears under its name.
#pragma once

#include <filesystem>

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

}  // namespace trainyard
