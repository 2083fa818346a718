// A part of the tables (rows::GivenPart) as the frame of a lane: rows leave from where they were
// copied to, and arrive in one piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/core/status.h"
#include "runtime/ps/chunk_body.h"
#include "runtime/rows/row_part.h"

namespace trainyard::runtime::ps {

ChunkFrame frameOf(rows::GivenPart part);

// A frame that arrives. Movable until body() has been asked for.
class ArrivingPart {
 public:
  // DATA_LOSS: not a FetchChunkReply of a part, or the body is shorter than it says.
  static StatusOr<ArrivingPart> make(std::string_view header, std::uint64_t body_bytes);

  // Where the body goes; stays valid while this lives.
  std::vector<std::span<std::byte>> body();
  // After its last byte. DATA_LOSS: its record cannot be read, or is of another length than the
  // body.
  StatusOr<rows::GivenPart> take() &&;

 private:
  ArrivingPart() = default;

  std::uint32_t record_bytes_ = 0;
  std::vector<std::byte> body_;
};

}  // namespace trainyard::runtime::ps
