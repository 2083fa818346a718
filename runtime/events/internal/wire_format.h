// Protobuf's wire format, for the few messages of TensorFlow's that are encoded by hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace trainyard::runtime::internal {

template <typename T>
void appendLittleEndian(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

// A key is (field number << 3 | wire type).
enum WireType : std::uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

inline void appendVarint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

inline void appendKey(std::string& out, std::uint32_t field, WireType type) {
  appendVarint(out, field << 3 | type);
}

inline void appendBytes(std::string& out, std::uint32_t field, std::string_view bytes) {
  appendKey(out, field, kBytes);
  appendVarint(out, bytes.size());
  out.append(bytes);
}

inline void appendNumber(std::string& out, std::uint32_t field, std::uint64_t value) {
  appendKey(out, field, kVarint);
  appendVarint(out, value);
}

}  // namespace trainyard::runtime::internal
