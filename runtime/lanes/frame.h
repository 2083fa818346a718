// The header of every frame on a lane: 40 bytes, little-endian; a message's header and its body
// follow.
//
//   0 "TYLN"   4 version u16   6 kind u16   8 number u64   16 header bytes u32   20 topic u32
//   24 body bytes u64   32 seal u64
//
// The seal is SipHash-2-4 over how many frames went before in this direction, the 32 bytes before
// it and the message's header, with a key that both sides derive from their proof: whoever takes
// over a connection later cannot say anything on it. The body is not sealed; where that is not
// enough, network.encryption: TLS encrypts all of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/core/status.h"
#include "base/security/sip_hash.h"

namespace trainyard::runtime::lanes {

inline constexpr std::uint16_t kLaneVersion = 1;
inline constexpr std::size_t kFrameBytes = 40;
// Of a message's header. A body may be as long as the receiver is ready for.
inline constexpr std::size_t kMaxHeader = std::size_t{16} << 10;

enum class FrameKind : std::uint16_t {
  kRequest = 1,  // number: counts the sender's requests on this connection
  kReply = 2,    // to that request of the other side, as the next two
  kReceipt = 3,  // the request has arrived in full
  kRefusal = 4,  // nothing will be done about it; the header says why, as text
};

// What it is about, and so what its header is.
enum class Topic : std::uint32_t {
  kChunk = 1,         // ChunkRequestHeader, ChunkReplyHeader
  kSharedMemory = 2,  // ShareMemoryRequest; answered by ShareMemoryReply
  kFetch = 3,         // FetchChunkRequest, FetchChunkReply
};

struct FrameHead {
  FrameKind kind = FrameKind::kRequest;
  Topic topic = Topic::kChunk;
  std::uint64_t number = 0;
  std::uint32_t header_bytes = 0;
  std::uint64_t body_bytes = 0;
};
using FrameBytes = std::array<std::byte, kFrameBytes>;

// The seals of one direction of one connection, frame after frame. Not thread-safe.
class FrameSeal {
 public:
  // `connection_key`: of 32 bytes; `direction` 0: from who has connected.
  FrameSeal(std::string_view connection_key, int direction);

  // Of the next frame, whose first 32 bytes are `head`.
  std::uint64_t next(std::span<const std::byte> head, std::string_view header);

 private:
  SipHash hash_;
  std::uint64_t count_ = 0;
};

FrameBytes encodeFrame(const FrameHead& head, std::string_view header, FrameSeal& seal);
// What the first 32 bytes say; the seal is checked by checkSeal() when the message's header is in.
// DATA_LOSS saying what is wrong: no frame, another version, numbers that mean nothing.
StatusOr<FrameHead> decodeFrame(std::span<const std::byte, kFrameBytes> bytes);
// DATA_LOSS: a frame that was not sealed for this place of this connection.
Status checkSeal(std::span<const std::byte, kFrameBytes> bytes, std::string_view header,
                 FrameSeal& seal);

}  // namespace trainyard::runtime::lanes
