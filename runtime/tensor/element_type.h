// What the elements of an array are, for code that handles arrays of any type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trainyard::runtime {

// Little-endian in memory and on the wire; the numbers are sent between processes.
enum class ElementType : std::uint8_t {
  kFloat32 = 0,
  kFloat16 = 1,   // IEEE 754 binary16
  kBFloat16 = 2,  // the upper half of a float32
  kFloat64 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kUint8 = 6,
  kInt8 = 7,
  kBool = 8,  // one byte; whatever is not 0 is true, results are 0 and 1
};
inline constexpr int kElementTypes = 9;

std::size_t sizeOf(ElementType type);       // bytes of one element
std::string_view nameOf(ElementType type);  // "float32"
bool isFloat(ElementType type);

}  // namespace trainyard::runtime
