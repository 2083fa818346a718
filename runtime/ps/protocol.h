#pragma once

#include <cstdint>

namespace trainyard::runtime::ps {

// Of ChunkRequest and ChunkReply (ChunkRequestHeader.protocol).
inline constexpr std::uint32_t kChunkProtocol = 3;

}  // namespace trainyard::runtime::ps
