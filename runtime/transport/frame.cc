#include "runtime/transport/frame.h"

#include <cstring>

#include "base/core/crc32c.h"
#include "fmt/format.h"

namespace trainyard::runtime::transport {
namespace {

constexpr std::uint32_t kFrameMagic = 0x31445954;  // "TYD1"
constexpr std::size_t kChecked = 52;

template <typename T>
void put(FrameBytes& to, std::size_t at, T value) {
  std::memcpy(to.data() + at, &value, sizeof(value));
}
template <typename T>
T get(const FrameBytes& from, std::size_t at) {
  T value;
  std::memcpy(&value, from.data() + at, sizeof(value));
  return value;
}

}  // namespace

FrameBytes encodeFrame(const Frame& frame) {
  const Operation& operation = frame.id.operation;
  FrameBytes bytes{};
  put(bytes, 0, kFrameMagic);
  put(bytes, 4, kProtocolVersion);
  put(bytes, 6, static_cast<std::uint16_t>(frame.kind));
  put(bytes, 8, frame.epoch);
  put(bytes, 16, operation.number);
  put(bytes, 24, operation.elements);
  put(bytes, 32, frame.id.part);
  put(bytes, 36,
      static_cast<std::uint8_t>(static_cast<int>(operation.kind) |
                                static_cast<int>(operation.algorithm) << 4));
  put(bytes, 37, static_cast<std::uint8_t>(operation.type));
  put(bytes, 38, static_cast<std::uint8_t>(operation.wire));
  put(bytes, 39, static_cast<std::uint8_t>(operation.op));
  put(bytes, 40, frame.bytes);
  put(bytes, 48, frame.checksum);
  put(bytes, kChecked, crc32c(std::span(bytes).first(kChecked)));
  return bytes;
}

StatusOr<Frame> decodeFrame(const FrameBytes& bytes) {
  if (get<std::uint32_t>(bytes, 0) != kFrameMagic)
    return absl::DataLossError("not a Trainyard message");
  if (get<std::uint32_t>(bytes, kChecked) != crc32c(std::span(bytes).first(kChecked))) {
    return absl::DataLossError("a message with a damaged header");
  }
  if (const auto version = get<std::uint16_t>(bytes, 4); version != kProtocolVersion) {
    return absl::DataLossError(
        fmt::format("protocol version {}; this is {}", version, kProtocolVersion));
  }
  Frame frame;
  const auto kind = get<std::uint16_t>(bytes, 6);
  const auto what = get<std::uint8_t>(bytes, 36);
  const auto type = get<std::uint8_t>(bytes, 37);
  const auto wire = get<std::uint8_t>(bytes, 38);
  const auto op = get<std::uint8_t>(bytes, 39);
  if (kind < 1 || kind > 4 || (what & 0xF) >= kKinds || (what >> 4) >= kAlgorithms ||
      type >= kElementTypes || wire >= kElementTypes || op >= kReduceOps) {
    return absl::DataLossError("a message of an unknown kind");
  }
  frame.kind = static_cast<FrameKind>(kind);
  frame.epoch = get<std::uint64_t>(bytes, 8);
  frame.id.operation.number = get<std::uint64_t>(bytes, 16);
  frame.id.operation.elements = get<std::uint64_t>(bytes, 24);
  frame.id.part = get<std::uint32_t>(bytes, 32);
  frame.id.operation.kind = static_cast<Kind>(what & 0xF);
  frame.id.operation.algorithm = static_cast<Algorithm>(what >> 4);
  frame.id.operation.type = static_cast<ElementType>(type);
  frame.id.operation.wire = static_cast<ElementType>(wire);
  frame.id.operation.op = static_cast<ReduceOp>(op);
  frame.bytes = get<std::uint64_t>(bytes, 40);
  frame.checksum = get<std::uint32_t>(bytes, 48);
  return frame;
}

}  // namespace trainyard::runtime::transport
