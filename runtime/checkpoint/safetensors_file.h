// A safetensors file by its open descriptor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/core/status.h"
#include "runtime/checkpoint/safetensors.h"

namespace trainyard::runtime {

// All of `out` from byte `offset` on. DATA_LOSS: the file ends before. Errors name `path`.
Status readFully(int fd, const std::string& path, std::uint64_t offset, std::span<std::byte> out);

// Of a file of `size` bytes. DATA_LOSS names `path` and what is wrong.
StatusOr<SafetensorsHeader> readSafetensorsHeader(int fd, const std::string& path,
                                                  std::uint64_t size);

}  // namespace trainyard::runtime
