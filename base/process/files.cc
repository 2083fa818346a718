#include "base/process/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "base/core/strings.h"
#include "base/process/new_file.h"
#include "base/process/poll.h"
#include "base/process/retry_interrupted.h"
#include "fmt/format.h"

namespace trainyard {
namespace fs = std::filesystem;
namespace {

Status failed(int error, std::string_view action, const fs::path& path) {
  return errnoStatus(error, fmt::format("{} {}", action, path.native()));
}

enum class Durable { kNo, kYes };

Status fill(const NewFile& file, std::string_view bytes, mode_t mode, Durable durable) {
  TY_RETURN_IF_ERROR(writeAll(file.fd.get(), bytes, file.path));
  if (::fchmod(file.fd.get(), mode) != 0) return failed(errno, "chmod", file.path);
  if (durable == Durable::kYes && retryInterrupted([&] { return ::fsync(file.fd.get()); }) != 0)
    return failed(errno, "fsync", file.path);
  return absl::OkStatus();
}

Status replace(const fs::path& path, std::string_view bytes, mode_t mode, Durable durable) {
  TY_ASSIGN_OR_RETURN(NewFile file, createBeside(path));
  Status status = fill(file, bytes, mode, durable);
  file.fd.reset();
  if (status.ok() && ::rename(file.path.c_str(), path.c_str()) != 0) {
    status = failed(errno, "rename to", path);
  }
  if (!status.ok()) {
    ::unlink(file.path.c_str());
    return status;
  }
  if (durable == Durable::kNo) return absl::OkStatus();
  return syncFolder(path.parent_path());
}

constexpr Duration kLockLook = std::chrono::milliseconds(10);

// The whole file, whatever its length.
struct flock wholeFile() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

// Whether `path` names the file that is open as `fd`.
bool isFile(int fd, const fs::path& path) {
  struct stat open {
  }, named{};
  return ::fstat(fd, &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

// False where another open file has it.
StatusOr<bool> tryLock(int fd, const fs::path& path) {
  struct flock lock = wholeFile();
  if (::fcntl(fd, F_OFD_SETLK, &lock) == 0) return true;
  if (errno == EAGAIN || errno == EACCES) return false;
  return failed(errno, "lock", path);
}

std::optional<pid_t> writtenPid(const fs::path& path) {
  const StatusOr<std::string> owner = readFile(path, 64);
  return owner.ok() ? parseNumber<pid_t>(trim(*owner)) : std::nullopt;
}

Status writePid(int fd, const fs::path& path) {
  if (::ftruncate(fd, 0) != 0 || ::lseek(fd, 0, SEEK_SET) != 0) {
    return failed(errno, "truncate", path);
  }
  return writeAll(fd, fmt::format("{}\n", ::getpid()), path);
}

}  // namespace

Status writeAll(int fd, std::string_view bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t n = retryInterrupted([&] { return ::write(fd, bytes.data(), bytes.size()); });
    if (n < 0) return failed(errno, "write", path);
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return absl::OkStatus();
}

Status syncFolder(const fs::path& folder) {
  const fs::path named = folder.empty() ? "." : folder;
  const UniqueFd fd(
      retryInterrupted([&] { return ::open(named.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (!fd.valid()) return failed(errno, "open", named);
  // Some file systems cannot sync a folder (EINVAL); what was done is then as durable as they make
  // it.
  const int synced = retryInterrupted([&] { return ::fsync(fd.get()); });
  if (synced != 0 && errno != EINVAL) return failed(errno, "fsync", named);
  return absl::OkStatus();
}

Status writeFileAtomically(const fs::path& path, std::string_view bytes, mode_t mode) {
  return replace(path, bytes, mode, Durable::kYes);
}

Status replaceFile(const fs::path& path, std::string_view bytes, mode_t mode) {
  return replace(path, bytes, mode, Durable::kNo);
}

StatusOr<std::string> readFile(const fs::path& path, std::size_t max_bytes) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return failed(errno, "open", path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return failed(errno, "stat", path);
  if (S_ISDIR(info.st_mode)) return failed(EISDIR, "read", path);
  if (!S_ISREG(info.st_mode)) return invalidInput(path.native(), "is not a regular file");
  std::string text;
  char buffer[64 * 1024];
  for (;;) {
    const ssize_t n = retryInterrupted([&] { return ::read(fd.get(), buffer, sizeof buffer); });
    if (n < 0) return failed(errno, "read", path);
    if (n == 0) return text;
    if (text.size() + static_cast<std::size_t>(n) > max_bytes) {
      return invalidInput(path.native(), fmt::format("larger than {} bytes", max_bytes));
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
  return failed(made == EEXIST ? ENOTDIR : made, "create folder", clean);
}

Status makeSharedDirectories(const fs::path& path) {
  struct stat info {};
  const bool there = ::stat(path.c_str(), &info) == 0;
  TY_RETURN_IF_ERROR(makeDirectories(path));
  if (there || ::stat(path.c_str(), &info) != 0 || (info.st_mode & S_ISGID) == 0)
    return absl::OkStatus();
  // Not at mkdir(), from whose mode the umask takes it.
  if (::chmod(path.c_str(), (info.st_mode & 07777) | S_IWGRP) == 0 || errno == EPERM)
    return absl::OkStatus();  // EPERM: another task was faster
  return failed(errno, "change the mode of folder", path);
}

StatusOr<FileLock> FileLock::acquire(const fs::path& path) {
  UniqueFd fd;
  bool locked = false;
  // Again where its former owner removed the file between our open and our lock.
  do {
    fd = UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (!fd.valid()) return failed(errno, "open", path);
    TY_ASSIGN_OR_RETURN(locked, tryLock(fd.get(), path));
  } while (locked && !isFile(fd.get(), path));
  if (!locked) {
    const std::optional<pid_t> pid = writtenPid(path);
    return absl::FailedPreconditionError(
        fmt::format("{}: locked by {}", path.native(),
                    pid ? fmt::format("process {}", *pid) : std::string("another process")));
  }
  TY_RETURN_IF_ERROR(writePid(fd.get(), path));
  return FileLock(std::move(fd));
}

StatusOr<FileLock> FileLock::acquireBy(const fs::path& path, const Clock& clock,
                                       TimePoint deadline) {
  for (;;) {
    StatusOr<FileLock> lock = acquire(path);
    if (!absl::IsFailedPrecondition(lock.status()) || clock.now() >= deadline) return lock;
    pollUntil({}, std::min(deadline, clock.now() + kLockLook));
  }
}

StatusOr<FileLock> FileLock::adopt(int fd, const fs::path& path) {
  if (!isFile(fd, path)) {
    return absl::FailedPreconditionError(
        fmt::format("{}: descriptor {} is another file", path.native(), fd));
  }
  TY_ASSIGN_OR_RETURN(const bool locked, tryLock(fd, path));
  if (!locked) {
    return absl::FailedPreconditionError(
        fmt::format("{}: descriptor {} does not hold the lock", path.native(), fd));
  }
  if (::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) return failed(errno, "take over the lock of", path);
  TY_RETURN_IF_ERROR(writePid(fd, path));
  return FileLock(UniqueFd(fd));
}

StatusOr<std::optional<pid_t>> FileLock::holder(const fs::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid() && errno == ENOENT) return std::optional<pid_t>();
  if (!fd.valid()) return failed(errno, "open", path);
  struct flock lock = wholeFile();
  if (::fcntl(fd.get(), F_OFD_GETLK, &lock) != 0) return failed(errno, "look at the lock of", path);
  if (lock.l_type == F_UNLCK) return std::optional<pid_t>();
  return std::optional<pid_t>(writtenPid(path).value_or(0));
}

}  // namespace trainyard
