// The header of a message from one rank to another, which no operation of the group knows of: 32
// bytes, little-endian.
//
//   0 "TYL1"   4 type u32   8 tag u64   16 elements u64   24 zero u64
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/core/status.h"
#include "runtime/tensor/element_type.h"

namespace trainyard::runtime::client {

struct Letter {
  ElementType type = ElementType::kFloat32;
  std::uint64_t tag = 0;
  std::int64_t elements = 0;

  std::size_t bytes() const { return static_cast<std::size_t>(elements) * sizeOf(type); }
};
inline constexpr std::size_t kLetterBytes = 32;
using LetterBytes = std::array<std::byte, kLetterBytes>;

LetterBytes encodeLetter(const Letter& letter);
// DATA_LOSS: not a letter, or a size that no array has.
StatusOr<Letter> decodeLetter(const LetterBytes& bytes);

}  // namespace trainyard::runtime::client
