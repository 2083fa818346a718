// How ranks that know one address find each other: rank 0 listens there, the others connect, prove
// that they know the secret, and say where they listen; rank 0 answers with all.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "runtime/transport/tcp_mesh.h"

namespace trainyard::runtime::client {

struct MeetingOptions {
  int rank = 0;
  int size = 1;
  std::string host;  // of rank 0, a name or numeric
  std::uint16_t port = 0;
  std::uint16_t listens_at = 0;  // this rank, for the group
  std::string secret;
  Duration timeout = std::chrono::seconds(60);
  // Asked a few times a second: true ends it with CANCELLED.
  std::function<bool()> cancelled = {};
};

// The same on all ranks, by rank. DEADLINE_EXCEEDED names who is missing, blaming the first, and
// says whether somebody came who left without having proved the secret; PERMISSION_DENIED: rank 0
// has another secret; UNAVAILABLE: rank 0's address is taken, or is no address of its machine;
// FAILED_PRECONDITION: another size, or two processes of one rank.
StatusOr<std::vector<transport::TcpAddress>> meet(const MeetingOptions& options);

}  // namespace trainyard::runtime::client
