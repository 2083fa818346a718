// Bytes of a task in both directions.
#pragma once

#include <cstdint>

namespace trainyard::agent {

// TCP's stream bytes: payload with the framing of gRPC and HTTP/2, without headers of TCP and IP.
struct WireBytes {
  std::uint64_t received = 0;
  std::uint64_t transmitted = 0;
};

}  // namespace trainyard::agent
