#include "runtime/lanes/frame.h"

#include "base/core/check.h"
#include "base/security/hkdf.h"
#include "fmt/format.h"
#include "runtime/transport/fixed_bytes.h"

namespace trainyard::runtime::lanes {
namespace {

using transport::getAt;
using transport::putAt;

constexpr std::uint32_t kFrameMagic = 0x4E4C5954;  // "TYLN"
constexpr std::size_t kSealed = 32;
constexpr std::uint64_t kMaxBody = std::uint64_t{1} << 40;

}  // namespace

FrameSeal::FrameSeal(std::string_view connection_key, int direction)
    : hash_(hkdfSha256(connection_key, "", fmt::format("frames of side {}", direction),
                       SipHash::kKeyBytes)) {}

std::uint64_t FrameSeal::next(std::span<const std::byte> head, std::string_view header) {
  const std::uint64_t count = count_++;
  return hash_.of({{reinterpret_cast<const char*>(&count), sizeof(count)},
                   {reinterpret_cast<const char*>(head.data()), kSealed},
                   header});
}

FrameBytes encodeFrame(const FrameHead& head, std::string_view header, FrameSeal& seal) {
  TY_CHECK(header.size() == head.header_bytes && header.size() <= kMaxHeader, "a message's header");
  FrameBytes bytes{};
  putAt(bytes, 0, kFrameMagic);
  putAt(bytes, 4, kLaneVersion);
  putAt(bytes, 6, static_cast<std::uint16_t>(head.kind));
  putAt(bytes, 8, head.number);
  putAt(bytes, 16, head.header_bytes);
  putAt(bytes, 20, static_cast<std::uint32_t>(head.topic));
  putAt(bytes, 24, head.body_bytes);
  putAt(bytes, kSealed, seal.next(bytes, header));
  return bytes;
}

StatusOr<FrameHead> decodeFrame(std::span<const std::byte, kFrameBytes> bytes) {
  if (getAt<std::uint32_t>(bytes, 0) != kFrameMagic)
    return absl::DataLossError("not a frame of a lane");
  if (const auto version = getAt<std::uint16_t>(bytes, 4); version != kLaneVersion) {
    return absl::DataLossError(
        fmt::format("a frame of version {}; this is {}", version, kLaneVersion));
  }
  const auto kind = getAt<std::uint16_t>(bytes, 6);
  const auto topic = getAt<std::uint32_t>(bytes, 20);
  FrameHead head{static_cast<FrameKind>(kind), static_cast<Topic>(topic),
                 getAt<std::uint64_t>(bytes, 8), getAt<std::uint32_t>(bytes, 16),
                 getAt<std::uint64_t>(bytes, 24)};
  if (kind < 1 || kind > 4 || head.header_bytes > kMaxHeader || head.body_bytes > kMaxBody ||
      topic < 1 || topic > 3) {
    return absl::DataLossError("a frame of an unknown kind");
  }
  return head;
}

Status checkSeal(std::span<const std::byte, kFrameBytes> bytes, std::string_view header,
                 FrameSeal& seal) {
  if (getAt<std::uint64_t>(bytes, kSealed) == seal.next(bytes, header)) return absl::OkStatus();
  return absl::DataLossError("a frame that is not the other side's");
}

}  // namespace trainyard::runtime::lanes
