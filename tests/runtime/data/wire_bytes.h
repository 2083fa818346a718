// tf.Examples byte by byte, by protobuf's wire format.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trainyard::runtime::wire {

inline std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}

inline std::string fixed(std::uint64_t value, int size) {
  std::string out;
  for (int i = 0; i < size; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}

// A field of wire type 2: bytes, a message, or packed numbers.
inline std::string field(std::uint64_t number, std::string_view bytes) {
  return varint(number << 3 | 2) + varint(bytes.size()) + std::string(bytes);
}

// Feature: BytesList 1, FloatList 2, Int64List 3, each of repeated value = 1; numbers packed.
inline std::string ofBytes(const std::vector<std::string>& values) {
  std::string list;
  for (const std::string& value : values) list += field(1, value);
  return field(1, list);
}
inline std::string ofFloats(const std::vector<float>& values) {
  std::string packed;
  for (const float value : values) packed += fixed(std::bit_cast<std::uint32_t>(value), 4);
  return field(2, field(1, packed));
}
inline std::string ofInts(const std::vector<std::int64_t>& values) {
  std::string packed;
  for (const std::int64_t value : values) packed += varint(static_cast<std::uint64_t>(value));
  return field(3, field(1, packed));
}

// An entry of Features.
inline std::string entry(std::string_view name, std::string_view feature) {
  return field(1, field(1, name) + field(2, feature));
}
inline std::string example(std::string_view entries) {
  return field(1, entries);
}

}  // namespace trainyard::runtime::wire
