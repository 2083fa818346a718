#include "runtime/events/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>

#include "base/core/strings.h"
#include "base/process/files.h"
#include "base/process/retry_interrupted.h"
#include "fmt/format.h"

namespace trainyard::runtime {
namespace fs = std::filesystem;
namespace {

Status failed(int error, std::string_view action, const fs::path& path) {
  return errnoStatus(error, fmt::format("{} {}", action, path.native()));
}

}  // namespace

StatusOr<AppendFile> AppendFile::openLines(const fs::path& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!fd.valid()) return failed(errno, "open", path);
  struct stat about {};
  if (::fstat(fd.get(), &about) != 0) return failed(errno, "stat", path);
  if (!S_ISREG(about.st_mode)) {
    return invalidInput(path.native(), "is not a regular file");
  }
  AppendFile file(std::move(fd), path);
  TY_ASSIGN_OR_RETURN(file.size_, file.endOfLastLine(about.st_size));
  if (file.size_ != about.st_size) TY_RETURN_IF_ERROR(file.truncate(file.size_));
  return file;
}

StatusOr<AppendFile> AppendFile::create(const fs::path& path) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644));
  if (fd.valid()) return AppendFile(std::move(fd), path);
  if (errno == EEXIST) {
    return absl::AlreadyExistsError(fmt::format("{} exists already", path.native()));
  }
  return failed(errno, "create", path);
}

StatusOr<off_t> AppendFile::endOfLastLine(off_t size) const {
  std::array<char, 4096> block;
  while (size > 0) {
    const off_t begin = std::max<off_t>(0, size - static_cast<off_t>(block.size()));
    const ssize_t n = retryInterrupted([&] {
      return ::pread(fd_.get(), block.data(), static_cast<std::size_t>(size - begin), begin);
    });
    if (n < 0) return failed(errno, "read", path_);
    const std::string_view text(block.data(), static_cast<std::size_t>(n));
    const std::size_t newline = text.rfind('\n');
    if (newline != std::string_view::npos) return begin + static_cast<off_t>(newline) + 1;
    size = begin;
  }
  return 0;
}

Status AppendFile::append(std::string_view record) {
  const Status written = writeAll(fd_.get(), record, path_);
  if (written.ok()) {
    size_ += static_cast<off_t>(record.size());
    return written;
  }
  // Half a record would spoil the ones that follow it once there is room again.
  const Status restored = truncate(size_);
  return restored.ok() ? written : annotate(written, fromAbsl(restored.message()));
}

Status AppendFile::truncate(off_t size) {
  const int cut = retryInterrupted([&] { return ::ftruncate(fd_.get(), size); });
  return cut == 0 ? absl::OkStatus() : failed(errno, "truncate", path_);
}

}  // namespace trainyard::runtime
