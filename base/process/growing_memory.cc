#include "base/process/growing_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "base/process/new_file.h"
#include "fmt/format.h"

namespace trainyard {

GrowingMemory::~GrowingMemory() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

StatusOr<GrowingMemory> GrowingMemory::inFolder(const std::filesystem::path& folder) {
  TY_ASSIGN_OR_RETURN(NewFile file, createBeside(folder / "scratch"));
  if (::unlink(file.path.c_str()) != 0)
    return errnoStatus(errno, fmt::format("remove {}", file.path.native()));
  GrowingMemory memory;
  memory.fd_ = std::move(file.fd);
  return memory;
}

Status GrowingMemory::resize(std::size_t bytes) {
  if (fd_.valid() && bytes > bytes_) {
    // A page without a block on the disk behind it would end the process when it is written to.
    const int error = ::posix_fallocate(fd_.get(), static_cast<off_t>(bytes_),
                                        static_cast<off_t>(bytes - bytes_));
    if (error != 0) return errnoStatus(error, fmt::format("take {} bytes", bytes - bytes_));
  }
  void* place = nullptr;
  if (data_ != nullptr) {
    place = ::mremap(data_, bytes_, bytes, MREMAP_MAYMOVE);
  } else {
    const int kind = fd_.valid() ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    place = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kind, fd_.get(), 0);
  }
  if (place == MAP_FAILED) return errnoStatus(errno, fmt::format("map {} bytes", bytes));
  data_ = static_cast<std::byte*>(place);
  if (fd_.valid() && bytes < bytes_ && ::ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0)
    return errnoStatus(errno, fmt::format("give back {} bytes", bytes_ - bytes));
  bytes_ = bytes;
  return absl::OkStatus();
}

}  // namespace trainyard
