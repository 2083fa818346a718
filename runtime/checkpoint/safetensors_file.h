// A safetensors file by its open descriptor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/core/status.h"
#include "base/process/unique_fd.h"
#include "runtime/checkpoint/safetensors.h"

namespace trainyard::runtime {

struct RegularFile {
  UniqueFd fd;
  std::uint64_t size = 0;
};
// For reading. errno's code (NOT_FOUND among them) where it cannot be opened, DATA_LOSS where it is
// no regular file; both name `path`.
StatusOr<RegularFile> openRegularFile(const std::string& path);

// All of `out` from byte `offset` on. DATA_LOSS: the file ends before. Errors name `path`.
Status readFully(int fd, const std::string& path, std::uint64_t offset, std::span<std::byte> out);

// Of a file of `size` bytes. DATA_LOSS names `path` and what is wrong.
StatusOr<SafetensorsHeader> readSafetensorsHeader(int fd, const std::string& path,
                                                  std::uint64_t size);

}  // namespace trainyard::runtime
