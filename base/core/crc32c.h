// CRC-32C (Castagnoli; RFC 3720, appendix B.4), by the processor's instruction where it has one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace trainyard {

// Of `bytes` after those that gave `before`.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);

// Rotated right by 15 bits, plus a constant, as TensorFlow's records hold it
// (tensorflow/core/lib/hash/crc32c.h).
std::uint32_t maskedCrc32c(std::span<const std::byte> bytes);

}  // namespace trainyard
