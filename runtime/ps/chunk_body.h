// A GivenChunk as the frame of a lane: the arrays leave from where they lie, and arrive in memory
// that is the new holder's from then on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/status.h"
#include "runtime/lanes/connection.h"
#include "runtime/ps/given_chunk.h"

namespace trainyard::runtime::ps {

struct ChunkFrame {
  std::string header;  // FetchChunkReply
  std::vector<lanes::BodyPiece> body;
};
ChunkFrame frameOf(GivenChunk chunk);

// A frame that arrives. Movable until body() has been asked for.
class ArrivingChunk {
 public:
  // Of a chunk of so many elements. DATA_LOSS: not a FetchChunkReply, or the body has not the
  // length that it says.
  static StatusOr<ArrivingChunk> make(std::string_view header, std::int64_t elements,
                                      std::uint64_t body_bytes);

  // Where the body goes; stays valid while this lives.
  std::vector<std::span<std::byte>> body();
  // After its last byte. DATA_LOSS: its record cannot be read.
  StatusOr<GivenChunk> take() &&;

 private:
  ArrivingChunk() = default;

  std::string record_;
  GivenChunk chunk_;
};

}  // namespace trainyard::runtime::ps
