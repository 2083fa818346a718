#include "runtime/client/letter.h"

#include <cstring>

#include "fmt/format.h"

namespace trainyard::runtime::client {
namespace {

constexpr std::uint32_t kMagic = 0x314C5954;  // "TYL1"
constexpr std::uint64_t kMostElements = std::uint64_t{1} << 48;

template <typename T>
void put(LetterBytes& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}
template <typename T>
T get(const LetterBytes& bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

}  // namespace

LetterBytes encodeLetter(const Letter& letter) {
  LetterBytes bytes{};
  put(bytes, 0, kMagic);
  put(bytes, 4, static_cast<std::uint32_t>(letter.type));
  put(bytes, 8, letter.tag);
  put(bytes, 16, static_cast<std::uint64_t>(letter.elements));
  return bytes;
}

StatusOr<Letter> decodeLetter(const LetterBytes& bytes) {
  const auto type = get<std::uint32_t>(bytes, 4);
  const auto elements = get<std::uint64_t>(bytes, 16);
  if (get<std::uint32_t>(bytes, 0) != kMagic || get<std::uint64_t>(bytes, 24) != 0) {
    return absl::DataLossError("not a message of libtrainyard");
  }
  if (type >= static_cast<std::uint32_t>(kElementTypes) || elements > kMostElements) {
    return absl::DataLossError(fmt::format("a message of {} elements of type {}", elements, type));
  }
  return Letter{static_cast<ElementType>(type), get<std::uint64_t>(bytes, 8),
                static_cast<std::int64_t>(elements)};
}

}  // namespace trainyard::runtime::client
