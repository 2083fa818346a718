#include "base/core/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

namespace trainyard {
namespace {

constexpr std::array<std::uint32_t, 256> makeTable() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value >> 1) ^ ((value & 1) != 0 ? 0x82F63B78u : 0u);
    }
    table[i] = value;
  }
  return table;
}

std::uint32_t crcByTable(const std::byte* bytes, std::size_t n, std::uint32_t crc) {
  static constexpr std::array<std::uint32_t, 256> kTable = makeTable();
  for (std::size_t i = 0; i < n; ++i) {
    crc = (crc >> 8) ^ kTable[(crc ^ std::to_integer<std::uint32_t>(bytes[i])) & 0xFF];
  }
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t crcByInstruction(const std::byte* bytes,
                                                                 std::size_t n, std::uint32_t crc) {
  std::uint64_t wide = crc;
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes + i, 8);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  return crcByTable(bytes + i, n - i, static_cast<std::uint32_t>(wide));
}
#endif

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) {
  const std::uint32_t start = ~before;
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return ~crcByInstruction(bytes.data(), bytes.size(), start);
#endif
  return ~crcByTable(bytes.data(), bytes.size(), start);
}

std::uint32_t maskedCrc32c(std::span<const std::byte> bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8u;
}

}  // namespace trainyard
