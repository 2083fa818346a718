#include "base/process/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "base/core/strings.h"
#include "base/process/unique_fd.h"
#include "fmt/format.h"

namespace trainyard {
namespace fs = std::filesystem;
namespace {

Status failed(int error, std::string_view action, const fs::path& path) {
  return errnoStatus(error, fmt::format("{} {}", action, path.native()));
}

Status writeAll(int fd, std::string_view bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed(errno, "write", path);
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return absl::OkStatus();
}

Status syncFolder(const fs::path& folder) {
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return failed(errno, "open", folder);
  // Some file systems cannot sync a folder; the rename is then as durable as they make it.
  if (::fsync(fd.get()) != 0 && errno != EINVAL) return failed(errno, "fsync", folder);
  return absl::OkStatus();
}

Status writeTemporary(const fs::path& temporary, std::string_view bytes, mode_t mode) {
  const UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) return failed(errno, "create", temporary);
  TY_RETURN_IF_ERROR(writeAll(fd.get(), bytes, temporary));
  if (::fchmod(fd.get(), mode) != 0) return failed(errno, "chmod", temporary);
  if (::fsync(fd.get()) != 0) return failed(errno, "fsync", temporary);
  return absl::OkStatus();
}

}  // namespace

Status writeFileAtomically(const fs::path& path, std::string_view bytes, mode_t mode) {
  static std::atomic<unsigned> counter{0};
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  // Hidden, and unlike that of any other process or thread.
  const fs::path temporary =
      folder / fmt::format(".{}.{}.{}", path.filename().native(), ::getpid(), counter++);
  ::unlink(temporary.c_str());  // of a former process with our pid that died here
  Status status = writeTemporary(temporary, bytes, mode);
  if (status.ok() && ::rename(temporary.c_str(), path.c_str()) != 0) {
    status = failed(errno, "rename to", path);
  }
  if (!status.ok()) {
    ::unlink(temporary.c_str());
    return status;
  }
  return syncFolder(folder);
}

StatusOr<std::string> readFile(const fs::path& path, std::size_t max_bytes) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return failed(errno, "open", path);
  std::string text;
  char buffer[64 * 1024];
  for (;;) {
    const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed(errno, "read", path);
    if (n == 0) return text;
    if (text.size() + static_cast<std::size_t>(n) > max_bytes) {
      return absl::ResourceExhaustedError(
          fmt::format("read {}: larger than {} bytes", path.native(), max_bytes));
    }
    text.append(buffer, static_cast<std::size_t>(n));
  }
}

Status makeDirectories(const fs::path& path, mode_t mode) {
  const fs::path clean = path.has_filename() ? path : path.parent_path();
  std::error_code error;
  if (clean.has_parent_path()) fs::create_directories(clean.parent_path(), error);
  if (error) return failed(error.value(), "create folder", clean.parent_path());
  if (::mkdir(clean.c_str(), mode) == 0) return absl::OkStatus();
  const int made = errno;
  struct stat info {};
  if (made == EEXIST && ::stat(clean.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    return absl::OkStatus();
  }
  return failed(made, "create folder", clean);
}

StatusOr<FileLock> FileLock::acquire(const fs::path& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd.valid()) return failed(errno, "open", path);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return failed(errno, "lock", path);
    const StatusOr<std::string> owner = readFile(path, 64);
    const std::string_view pid = owner.ok() ? trim(*owner) : std::string_view();
    return absl::FailedPreconditionError(
        fmt::format("{}: locked by {}", path.native(),
                    pid.empty() ? std::string("another process") : fmt::format("process {}", pid)));
  }
  if (::ftruncate(fd.get(), 0) != 0) return failed(errno, "truncate", path);
  TY_RETURN_IF_ERROR(writeAll(fd.get(), fmt::format("{}\n", ::getpid()), path));
  return FileLock(fd.release());
}

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace trainyard
