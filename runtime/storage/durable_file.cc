#include "runtime/storage/durable_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "base/process/files.h"
#include "base/process/retry_interrupted.h"
#include "fmt/format.h"

namespace trainyard::runtime {
namespace {

// One write() takes at most this much, so that an interruption is never far away.
constexpr std::size_t kWriteLimit = 64u << 20;

}  // namespace

StatusOr<DurableFile> DurableFile::create(const std::string& path, unsigned mode,
                                          const std::string& named) {
  const std::string temporary = named.empty() ? path + ".tmp" : named;
  // What a crash left goes first instead of being truncated: after commitExclusively() died
  // half-way it is the same file as PATH.
  ::unlink(temporary.c_str());
  UniqueFd fd(retryInterrupted(
      [&] { return ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode); }));
  if (!fd.valid()) {
    const int error = errno;
    if (error == ENOSPC || error == EDQUOT) {
      return absl::ResourceExhaustedError(fmt::format("{}: no space left", path));
    }
    return errnoStatus(error, fmt::format("{}: cannot create", temporary));
  }
  return DurableFile(path, temporary, std::move(fd));
}

DurableFile::DurableFile(std::string path, std::string temporary, UniqueFd fd)
    : path_(std::move(path)), temporary_(std::move(temporary)), fd_(std::move(fd)) {}

DurableFile::DurableFile(DurableFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      fd_(std::move(other.fd_)),
      size_(other.size_),
      synced_(other.synced_),
      hash_(std::move(other.hash_)) {}

DurableFile::~DurableFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Status DurableFile::failed(int error, std::string_view what) const {
  // EFBIG is the quota of a process (RLIMIT_FSIZE) or of a file system's file size.
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return absl::ResourceExhaustedError(
        fmt::format("{}: {} after {} bytes: no space left", path_, what, size_));
  }
  return errnoStatus(error, fmt::format("{}: {} after {} bytes", path_, what, size_));
}

Status DurableFile::write(std::span<const std::byte> bytes) {
  synced_ = false;
  while (!bytes.empty()) {
    const std::size_t want = std::min(bytes.size(), kWriteLimit);
    const ssize_t n = retryInterrupted([&] { return ::write(fd_.get(), bytes.data(), want); });
    if (n <= 0) return failed(n < 0 ? errno : ENOSPC, "cannot write");
    const auto written = bytes.first(static_cast<std::size_t>(n));
    hash_.update(written);
    size_ += written.size();
    bytes = bytes.subspan(written.size());
  }
  return absl::OkStatus();
}

Status DurableFile::sync() {
  if (synced_) return absl::OkStatus();
  // A failed fsync may have dropped the pages: it is never repeated, the file is given up.
  if (retryInterrupted([&] { return ::fsync(fd_.get()); }) != 0)
    return failed(errno, "cannot fsync");
  synced_ = true;
  return absl::OkStatus();
}

Status DurableFile::syncFolder() const {
  return trainyard::syncFolder(std::filesystem::path(path_).parent_path());
}

Status DurableFile::commit() {
  TY_RETURN_IF_ERROR(sync());
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return failed(errno, "cannot rename");
  temporary_.clear();
  return syncFolder();
}

Status DurableFile::commitExclusively() {
  TY_RETURN_IF_ERROR(sync());
  // link() fails when the name is taken, on every file system that has it; where there is none
  // (FAT, some FUSE), renameat2 does the same.
  int error = ::link(temporary_.c_str(), path_.c_str()) == 0 ? 0 : errno;
  if (error == EPERM || error == EOPNOTSUPP || error == ENOSYS || error == EMLINK) {
    error =
        ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) == 0
            ? 0
            : errno;
    if (error == 0) temporary_.clear();
  }
  if (error == EEXIST) return absl::AlreadyExistsError(fmt::format("{}: exists already", path_));
  if (error != 0) return failed(error, "cannot create exclusively");
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
  return syncFolder();
}

}  // namespace trainyard::runtime
