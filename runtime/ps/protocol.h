#pragma once

#include <cstdint>
#include <string_view>

namespace trainyard::runtime::ps {

// Of ChunkRequest and ChunkReply (ChunkRequestHeader.protocol), and of how variables are cut into
// chunks, which all programs of a job do alike (runtime/placement/chunks.cc).
inline constexpr std::uint32_t kChunkProtocol = 6;

// The message of CHUNK_NOT_READY to a call whose caller has asked again: nothing is wrong.
inline constexpr std::string_view kAskedAgain = "repeated";

}  // namespace trainyard::runtime::ps
