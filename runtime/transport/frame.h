// The header of every message on a TCP connection: 56 bytes, little-endian.
//
//   0 "TYD1"   4 version u16   6 kind u16   8 epoch u64   16 operation u64   24 elements u64
//   32 part u32   36 kind, algorithm, type, reduction u8 each   40 payload bytes u64
//   48 checksum of the payload u32 (0: not checked)   52 checksum of bytes 0..51 u32
//
// The byte at 36 holds the operation's kind (4 bits) and algorithm (4), that at 37 the type, at 38
// the type on the wire, at 39 the reduction. Checksums are CRC-32C (RFC 3720, appendix B.4).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/core/status.h"
#include "runtime/transport/message.h"

namespace trainyard::runtime::transport {

inline constexpr std::uint16_t kProtocolVersion = 2;

enum class FrameKind : std::uint16_t {
  kData = 1,
  // Control, against the direction of the data:
  kAbort = 2,    // elements: the blamed rank; part: the code; payload: why, in words
  kWaiting = 3,  // elements: the rank that is waited for, or kNobody
  kGoodbye = 4,  // the sender leaves on purpose
};
inline constexpr std::uint64_t kNobody = 0xFFFFFFFF;

struct Frame {
  FrameKind kind = FrameKind::kData;
  std::uint64_t epoch = 0;
  MessageId id;
  std::uint64_t bytes = 0;
  std::uint32_t checksum = 0;
};
using FrameBytes = std::array<std::byte, kFrameBytes>;

FrameBytes encodeFrame(const Frame& frame);
// DATA_LOSS saying what is wrong: no frame, damaged, another version, numbers that mean nothing.
StatusOr<Frame> decodeFrame(const FrameBytes& bytes);

}  // namespace trainyard::runtime::transport
