#include "runtime/storage/local_storage.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/process/files.h"
#include "base/process/retry_interrupted.h"
#include "base/security/random.h"
#include "fmt/format.h"
#include "runtime/storage/durable_file.h"

namespace trainyard::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kReadBytes = 1u << 20;

class LocalFile : public ReadableFile {
 public:
  LocalFile(std::string path, std::uint64_t size, UniqueFd fd)
      : ReadableFile(std::move(path), size), fd_(std::move(fd)) {}

  Status read(std::uint64_t offset, std::span<std::byte> out) const override {
    return readFully(fd_.get(), path(), offset, out);
  }

  Status readThrough(const std::function<void(std::span<const std::byte>)>& sink) const override {
    std::vector<std::byte> buffer(std::min<std::uint64_t>(kReadBytes, size()));
    for (std::uint64_t at = 0; at < size();) {
      const auto part =
          std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), size() - at));
      TY_RETURN_IF_ERROR(read(at, part));
      sink(part);
      at += part.size();
    }
    return absl::OkStatus();
  }

 private:
  const UniqueFd fd_;
};

std::int64_t modifiedAt(const struct stat& stat) {
  return stat.st_mtim.tv_sec * 1'000'000'000 + stat.st_mtim.tv_nsec;
}

}  // namespace

Status readFully(int fd, const std::string& path, std::uint64_t offset, std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t n = retryInterrupted(
        [&] { return ::pread(fd, out.data(), out.size(), static_cast<off_t>(offset)); });
    if (n < 0) return errnoStatus(errno, fmt::format("{}: cannot read at byte {}", path, offset));
    if (n == 0) return absl::DataLossError(fmt::format("{}: ends at byte {}", path, offset));
    offset += static_cast<std::uint64_t>(n);
    out = out.subspan(static_cast<std::size_t>(n));
  }
  return absl::OkStatus();
}

StatusOr<std::vector<StoredFile>> LocalStorage::list(const std::string& folder) {
  std::vector<StoredFile> files;
  std::error_code error;
  fs::directory_iterator it(folder, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    struct stat stat {};
    if (::lstat(it->path().c_str(), &stat) != 0) continue;  // removed meanwhile
    files.push_back({.name = it->path().filename().string(),
                     .size = static_cast<std::uint64_t>(stat.st_size),
                     .modified_ns = modifiedAt(stat)});
  }
  if (error && error != std::errc::no_such_file_or_directory)
    return errnoStatus(error.value(), fmt::format("{}: cannot list", folder));
  return files;
}

StatusOr<std::shared_ptr<const ReadableFile>> LocalStorage::open(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return errnoStatus(errno, path);
  struct stat stat {};
  if (::fstat(fd.get(), &stat) != 0 || !S_ISREG(stat.st_mode))
    return absl::DataLossError(fmt::format("{}: is not a regular file", path));
  return std::make_shared<const LocalFile>(path, static_cast<std::uint64_t>(stat.st_size),
                                           std::move(fd));
}

StatusOr<std::unique_ptr<WritableFile>> LocalStorage::create(const std::string& path,
                                                             Writers writers) {
  const std::string temporary =
      writers == Writers::kOne ? "" : fmt::format("{}.{}.tmp", path, randomHex(8));
  TY_ASSIGN_OR_RETURN(DurableFile file, DurableFile::create(path, 0644, temporary));
  return std::make_unique<DurableFile>(std::move(file));
}

Status LocalStorage::remove(const std::string& path) {
  std::error_code error;
  fs::remove(path, error);  // absent is as good as removed
  if (error) return errnoStatus(error.value(), fmt::format("{}: cannot remove", path));
  return absl::OkStatus();
}

Status LocalStorage::makeFolder(const std::string& folder) {
  return makeSharedDirectories(folder);
}

Status LocalStorage::settle(const std::string& folder) {
  return syncFolder(folder);
}

}  // namespace trainyard::runtime
