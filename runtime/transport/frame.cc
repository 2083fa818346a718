#include "runtime/transport/frame.h"

#include "base/core/crc32c.h"
#include "fmt/format.h"
#include "runtime/transport/fixed_bytes.h"

namespace trainyard::runtime::transport {
namespace {

constexpr std::uint32_t kFrameMagic = 0x31445954;  // "TYD1"
constexpr std::size_t kChecked = 52;

}  // namespace

FrameBytes encodeFrame(const Frame& frame) {
  const Operation& operation = frame.id.operation;
  FrameBytes bytes{};
  putAt(bytes, 0, kFrameMagic);
  putAt(bytes, 4, kProtocolVersion);
  putAt(bytes, 6, static_cast<std::uint16_t>(frame.kind));
  putAt(bytes, 8, frame.epoch);
  putAt(bytes, 16, operation.number);
  putAt(bytes, 24, operation.elements);
  putAt(bytes, 32, frame.id.part);
  putAt(bytes, 36,
        static_cast<std::uint8_t>(static_cast<int>(operation.kind) |
                                  static_cast<int>(operation.algorithm) << 4));
  putAt(bytes, 37, static_cast<std::uint8_t>(operation.type));
  putAt(bytes, 38, static_cast<std::uint8_t>(operation.wire));
  putAt(bytes, 39, static_cast<std::uint8_t>(operation.op));
  putAt(bytes, 40, frame.bytes);
  putAt(bytes, 48, frame.checksum);
  putAt(bytes, kChecked, crc32c(std::span(bytes).first(kChecked)));
  return bytes;
}

StatusOr<Frame> decodeFrame(const FrameBytes& bytes) {
  if (getAt<std::uint32_t>(bytes, 0) != kFrameMagic)
    return absl::DataLossError("not a Trainyard message");
  if (getAt<std::uint32_t>(bytes, kChecked) != crc32c(std::span(bytes).first(kChecked))) {
    return absl::DataLossError("a message with a damaged header");
  }
  if (const auto version = getAt<std::uint16_t>(bytes, 4); version != kProtocolVersion) {
    return absl::DataLossError(
        fmt::format("protocol version {}; this is {}", version, kProtocolVersion));
  }
  Frame frame;
  const auto kind = getAt<std::uint16_t>(bytes, 6);
  const auto what = getAt<std::uint8_t>(bytes, 36);
  const auto type = getAt<std::uint8_t>(bytes, 37);
  const auto wire = getAt<std::uint8_t>(bytes, 38);
  const auto op = getAt<std::uint8_t>(bytes, 39);
  if (kind < 1 || kind > 4 || (what & 0xF) >= kKinds || (what >> 4) >= kAlgorithms ||
      type >= kElementTypes || wire >= kElementTypes || op >= kReduceOps) {
    return absl::DataLossError("a message of an unknown kind");
  }
  frame.kind = static_cast<FrameKind>(kind);
  frame.epoch = getAt<std::uint64_t>(bytes, 8);
  frame.id.operation.number = getAt<std::uint64_t>(bytes, 16);
  frame.id.operation.elements = getAt<std::uint64_t>(bytes, 24);
  frame.id.part = getAt<std::uint32_t>(bytes, 32);
  frame.id.operation.kind = static_cast<Kind>(what & 0xF);
  frame.id.operation.algorithm = static_cast<Algorithm>(what >> 4);
  frame.id.operation.type = static_cast<ElementType>(type);
  frame.id.operation.wire = static_cast<ElementType>(wire);
  frame.id.operation.op = static_cast<ReduceOp>(op);
  frame.bytes = getAt<std::uint64_t>(bytes, 40);
  frame.checksum = getAt<std::uint32_t>(bytes, 48);
  return frame;
}

}  // namespace trainyard::runtime::transport
