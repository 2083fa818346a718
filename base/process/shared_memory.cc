#include "base/process/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>

#include "base/process/memory.h"
#include "fmt/format.h"

namespace trainyard {
namespace {

// Who maps it must not be hit by a signal because it became shorter.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr std::int64_t kShare = 4;

}  // namespace

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

StatusOr<SharedMemory> SharedMemory::map(UniqueFd fd, const std::string& name, std::size_t bytes,
                                         Access access) {
  const int allowed = access == Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  // Not populated here: that takes seconds for gigabytes, in which no thread of this process gets
  // other memory. Whoever copies meets the pages one by one.
  void* const base = ::mmap(nullptr, bytes, allowed, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) return errnoStatus(errno, name);
  return SharedMemory(std::move(fd), static_cast<std::byte*>(base), bytes);
}

StatusOr<SharedMemory> SharedMemory::create(const std::string& name, std::size_t bytes) {
  TY_ASSIGN_OR_RETURN(const AvailableMemory left, availableMemory());
  if (bytes > static_cast<std::size_t>(left.bytes / kShare)) {
    return absl::ResourceExhaustedError(fmt::format("{}: {} bytes to share, {} are left ({})", name,
                                                    bytes, left.bytes, left.source));
  }
  UniqueFd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return errnoStatus(errno, name);
  if (const int error = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes)); error != 0) {
    return errnoStatus(error, fmt::format("{} bytes of {}", bytes, name));
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return errnoStatus(errno, name);
  return map(std::move(fd), name, bytes, Access::kWrite);
}

StatusOr<SharedMemory> SharedMemory::open(pid_t pid, int fd, std::size_t bytes, Access access) {
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, fd);
  // Whatever is there, looking at it must have no effect.
  const int mode = access == Access::kRead ? O_RDONLY : O_RDWR;
  UniqueFd own(::open(path.c_str(), mode | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!own.valid()) return errnoStatus(errno, path);
  struct stat seen {};
  const bool known = ::fstat(own.get(), &seen) == 0 && S_ISREG(seen.st_mode) &&
                     seen.st_size == static_cast<off_t>(bytes) &&
                     ::fcntl(own.get(), F_GET_SEALS) == kSeals;
  if (!known) return absl::UnavailableError(path + ": another file is there");
  return map(std::move(own), path, bytes, access);
}

}  // namespace trainyard
