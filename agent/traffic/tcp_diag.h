// The kernel's own counters of TCP connections, by NETLINK_SOCK_DIAG (sock_diag(7)).
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "base/process/unique_fd.h"

namespace trainyard::agent {

// One end of a connection. IPv4 addresses are mapped into IPv6 (::ffff:0:0/96).
struct TcpEnd {
  std::array<std::uint8_t, 16> ip = {};
  int port = 0;
  auto operator<=>(const TcpEnd&) const = default;
};
// INVALID_ARGUMENT when `ip` is no address in digits.
StatusOr<TcpEnd> tcpEnd(const std::string& ip, int port);

// Bytes of one connection as TCP carried them: the stream itself, with whatever framing it holds,
// without headers of TCP and IP and without repetitions. RFC 4898's
// tcpEStatsAppHCThruOctetsReceived and ...Acked.
struct TcpConnection {
  std::uint64_t cookie = 0;  // of the socket, unique as long as the machine runs
  std::uint64_t received = 0;
  std::uint64_t transmitted = 0;  // and acknowledged by the peer
  TcpEnd local = {};
  TcpEnd remote = {};
  std::uint32_t inode = 0;  // of the socket's file; 0 once it is closed
};

// One network namespace: the caller's. Not thread-safe. Movable.
class TcpDiag {
 public:
  // Some thousand ends. The default has room for 166, which a busy machine reaches within the half
  // second between two reads.
  static constexpr int kToldBytes = 8 << 20;

  // UNAVAILABLE where the kernel does not offer it. `told_bytes`: the room for what takeEnded() has
  // not taken yet; a user without rights gets net.core.rmem_max at most.
  static StatusOr<TcpDiag> open(int told_bytes = kToldBytes);

  // The connections whose local port is `port` (0: all), listening sockets left out.
  StatusOr<std::vector<TcpConnection>> list(int port);
  // Connections of that port that ended since the last call (or open()), with their last counters.
  // The kernel tells of each once, soon after its end. It tells all listeners of a network
  // namespace of all that end there: what finds no room is lost.
  std::vector<TcpConnection> takeEnded(int port);
  // Waits until something was told that takeEnded() has not taken; false: not in time.
  bool waitForEnded(TimePoint deadline) const;
  // Ends a socket of its own, which the kernel tells after most of what ended before, and waits for
  // that.
  void waitForEndsOfBefore(TimePoint deadline);
  // Whether some ends were lost so far.
  bool lostSome() const { return losses_ > 0; }

 private:
  TcpDiag(UniqueFd requests, UniqueFd events)
      : requests_(std::move(requests)), events_(std::move(events)) {}

  // What the kernel has told since the last call, of all ports.
  std::vector<TcpConnection> takeEvents();

  UniqueFd requests_;
  UniqueFd events_;                  // invalid: the kernel does not tell of ends
  std::vector<TcpConnection> told_;  // ... and takeEnded() has not taken yet
  int losses_ = 0;
};

}  // namespace trainyard::agent
