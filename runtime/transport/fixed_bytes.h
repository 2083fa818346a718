// Numbers at fixed places of a header, in the byte order of this machine, which all that this runs
// on share (little-endian).
#pragma once

#include <cstddef>
#include <cstring>

namespace trainyard::runtime::transport {

// `bytes` is an array or a string of bytes that is long enough: at + sizeof(T) <= size.
template <typename T, typename Bytes>
void putAt(Bytes& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(value));
}
template <typename T, typename Bytes>
T getAt(const Bytes& bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

}  // namespace trainyard::runtime::transport
