// Memory that grows at its end: of this process, or of a file in a folder, whose pages the system
// writes there and takes for other things where memory is scarce.
#pragma once

#include <cstddef>
#include <filesystem>
#include <utility>

#include "base/core/status.h"
#include "base/process/unique_fd.h"

namespace trainyard {

// One thread at a time may change it; what it holds any number may read.
class GrowingMemory {
 public:
  GrowingMemory() = default;  // of this process
  // Of a new file in `folder` that has no name there and goes with the process, however that ends.
  // Errors as of errnoStatus(), with the file's name.
  static StatusOr<GrowingMemory> inFolder(const std::filesystem::path& folder);

  GrowingMemory(GrowingMemory&& other) noexcept { *this = std::move(other); }
  GrowingMemory& operator=(GrowingMemory&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~GrowingMemory();

  // Makes it `bytes` (> 0) long, new ones are 0; what was there stays, maybe at another address.
  // On a disk without room for them nothing changes: no later access can fail. Errors as of
  // errnoStatus().
  Status resize(std::size_t bytes);

  std::byte* data() const { return data_; }  // page aligned; nullptr: 0 bytes
  std::size_t bytes() const { return bytes_; }

 private:
  UniqueFd fd_;  // of the file, where there is one
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace trainyard
