// Memory that two processes of one machine share: a file in memory without a name, which the other
// process opens through /proc. It lives as long as one of them has it mapped.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <utility>

#include "base/core/status.h"
#include "base/process/unique_fd.h"

namespace trainyard {

class SharedMemory {
 public:
  // `bytes` (> 0) of zeros, taken at once, so that nothing can fail later. It never changes its
  // size. RESOURCE_EXHAUSTED when that is more than a quarter of the memory that is left: the
  // kernel refuses nothing, it kills. Else errors as of errnoStatus(), with `name`.
  static StatusOr<SharedMemory> create(const std::string& name, std::size_t bytes);
  enum class Access { kRead, kWrite };
  // What process `pid` made, under its file descriptor `fd`. UNAVAILABLE when something else is
  // there, as with a number that belongs to another machine; else as of errnoStatus(). To write
  // where only reading was asked for ends the process.
  static StatusOr<SharedMemory> open(pid_t pid, int fd, std::size_t bytes,
                                     Access access = Access::kWrite);

  SharedMemory(SharedMemory&& other) noexcept
      : fd_(std::move(other.fd_)),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  SharedMemory& operator=(SharedMemory&&) = delete;
  ~SharedMemory();

  std::byte* data() const { return data_; }  // page aligned
  std::size_t bytes() const { return bytes_; }
  int fd() const { return fd_.get(); }

 private:
  SharedMemory(UniqueFd fd, std::byte* data, std::size_t bytes)
      : fd_(std::move(fd)), data_(data), bytes_(bytes) {}
  static StatusOr<SharedMemory> map(UniqueFd fd, const std::string& name, std::size_t bytes,
                                    Access access);

  UniqueFd fd_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace trainyard
