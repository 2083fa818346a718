// The safetensors format: 8 bytes length of the header (little-endian), the header as JSON, then
// the arrays one after the other without holes. https://github.com/huggingface/safetensors#format
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/status.h"

namespace trainyard::runtime {

// The format's own bound on the header.
inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // see elementBytes()
  std::vector<std::int64_t> shape;
  // Bytes [begin, end) behind the header. For the writer only the order of entries counts.
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<SafetensorsEntry> entries;  // by offset
  std::uint64_t data_start = 0;           // from the start of the file
};

// Of one element of a dtype that is known here: F64, F32, F16, BF16, I64, I32, I8, U8, BOOL. 0: it
// is not.
std::uint64_t elementBytes(std::string_view dtype);

// Length and header for the entries in this order, padded with spaces so that the arrays start at a
// multiple of 64. INVALID_ARGUMENT for a name that occurs twice, a dtype that is not known, or a
// header that is too long.
StatusOr<std::string> encodeSafetensorsHeader(const std::map<std::string, std::string>& metadata,
                                              const std::vector<SafetensorsEntry>& entries);

// `text` is the header without its length. Checks dtype, shape against offsets, no holes or
// overlaps, and that the arrays fill the file of `file_size` bytes exactly. INVALID_ARGUMENT says
// what is wrong (without the file's name).
StatusOr<SafetensorsHeader> decodeSafetensorsHeader(std::string_view text, std::uint64_t file_size);

}  // namespace trainyard::runtime
