// A file that grows by whole records.
#pragma once

#include <filesystem>
#include <string_view>
#include <utility>

#include "base/core/status.h"
#include "base/process/unique_fd.h"

namespace trainyard::runtime {

// Owned by one thread; the file has no other writer. Errors name the path.
class AppendFile {
 public:
  // Opens or creates a file of lines. What follows the last newline, a line that was being written
  // when its writer died, is cut off.
  static StatusOr<AppendFile> openLines(const std::filesystem::path& path);
  // ALREADY_EXISTS when there is such a file.
  static StatusOr<AppendFile> create(const std::filesystem::path& path);

  // All of `record` or, with an error, nothing of it.
  Status append(std::string_view record);
  const std::filesystem::path& path() const { return path_; }

 private:
  AppendFile(UniqueFd fd, std::filesystem::path path)
      : fd_(std::move(fd)), path_(std::move(path)) {}
  Status truncate(off_t size);
  StatusOr<off_t> endOfLastLine(off_t size) const;

  UniqueFd fd_;
  std::filesystem::path path_;
  off_t size_ = 0;  // of whole records
};

}  // namespace trainyard::runtime
