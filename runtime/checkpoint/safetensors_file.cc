#include "runtime/checkpoint/safetensors_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/core/strings.h"
#include "base/process/retry_interrupted.h"
#include "fmt/format.h"

namespace trainyard::runtime {
namespace {

Status noSafetensors(const std::string& path, std::string_view what) {
  return absl::DataLossError(fmt::format("{}: {}", path, what));
}

}  // namespace

StatusOr<RegularFile> openRegularFile(const std::string& path) {
  RegularFile file;
  file.fd = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.fd.valid()) return errnoStatus(errno, path);
  struct stat stat {};
  if (::fstat(file.fd.get(), &stat) != 0 || !S_ISREG(stat.st_mode))
    return noSafetensors(path, "is not a regular file");
  file.size = static_cast<std::uint64_t>(stat.st_size);
  return file;
}

Status readFully(int fd, const std::string& path, std::uint64_t offset, std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t n = retryInterrupted(
        [&] { return ::pread(fd, out.data(), out.size(), static_cast<off_t>(offset)); });
    if (n < 0) return errnoStatus(errno, fmt::format("{}: cannot read at byte {}", path, offset));
    if (n == 0) return noSafetensors(path, fmt::format("ends at byte {}", offset));
    offset += static_cast<std::uint64_t>(n);
    out = out.subspan(static_cast<std::size_t>(n));
  }
  return absl::OkStatus();
}

StatusOr<SafetensorsHeader> readSafetensorsHeader(int fd, const std::string& path,
                                                  std::uint64_t size) {
  std::uint64_t length = 0;
  if (size < sizeof length) return noSafetensors(path, "is too short for a safetensors file");
  TY_RETURN_IF_ERROR(readFully(fd, path, 0, std::as_writable_bytes(std::span(&length, 1))));
  if (length > kMaxSafetensorsHeader || length > size - sizeof length) {
    return noSafetensors(path, fmt::format("header of {} bytes in a file of {}", length, size));
  }
  std::string text(length, '\0');
  TY_RETURN_IF_ERROR(readFully(fd, path, sizeof length,
                               std::as_writable_bytes(std::span(text.data(), text.size()))));
  auto header = decodeSafetensorsHeader(text, size);
  if (!header.ok()) {
    return noSafetensors(path, fromAbsl(header.status().message()));
  }
  return header;
}

}  // namespace trainyard::runtime
