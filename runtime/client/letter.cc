#include "runtime/client/letter.h"

#include "fmt/format.h"
#include "runtime/transport/fixed_bytes.h"

namespace trainyard::runtime::client {
namespace {

constexpr std::uint32_t kMagic = 0x314C5954;  // "TYL1"
constexpr std::uint64_t kMostElements = std::uint64_t{1} << 48;

}  // namespace

LetterBytes encodeLetter(const Letter& letter) {
  LetterBytes bytes{};
  transport::putAt(bytes, 0, kMagic);
  transport::putAt(bytes, 4, static_cast<std::uint32_t>(letter.type));
  transport::putAt(bytes, 8, letter.tag);
  transport::putAt(bytes, 16, static_cast<std::uint64_t>(letter.elements));
  return bytes;
}

StatusOr<Letter> decodeLetter(const LetterBytes& bytes) {
  const auto type = transport::getAt<std::uint32_t>(bytes, 4);
  const auto elements = transport::getAt<std::uint64_t>(bytes, 16);
  if (transport::getAt<std::uint32_t>(bytes, 0) != kMagic ||
      transport::getAt<std::uint64_t>(bytes, 24) != 0) {
    return absl::DataLossError("not a message of libtrainyard");
  }
  if (type >= static_cast<std::uint32_t>(kElementTypes) || elements > kMostElements) {
    return absl::DataLossError(fmt::format("a message of {} elements of type {}", elements, type));
  }
  return Letter{static_cast<ElementType>(type), transport::getAt<std::uint64_t>(bytes, 8),
                static_cast<std::int64_t>(elements)};
}

}  // namespace trainyard::runtime::client
