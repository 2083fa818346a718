// Bytes on the wire of a task: what its connections carried, whatever program serves them.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "agent/traffic/tcp_diag.h"

namespace trainyard::agent {

// TCP's stream bytes: payload with the framing of gRPC and HTTP/2, without headers of TCP and IP.
struct WireBytes {
  std::uint64_t received = 0;
  std::uint64_t transmitted = 0;
};

// Adds up connections that come and go. Pure; not thread-safe.
class ConnectionTotals {
 public:
  // All connections of now, with what they counted so far.
  void onList(const std::vector<TcpBytes>& connections);
  // Last counters of connections that are no more.
  void onEnded(const std::vector<TcpBytes>& connections);
  WireBytes total() const;
  // Connections still kept one by one.
  std::size_t size() const { return open_.size(); }

 private:
  struct Connection {
    WireBytes bytes;
    int missed = 0;  // lists in a row without it
  };
  std::map<std::uint64_t, Connection> open_;  // by cookie
  WireBytes ended_;
};

// Thread-safe.
class WireMeter {
 public:
  // Counts the connections whose local port is `port`, in the network namespace of this process.
  explicit WireMeter(int port);

  // Since the meter was made, up to now. Nothing where the kernel does not say; the reason was
  // logged once.
  std::optional<WireBytes> read();

 private:
  const int port_;
  std::mutex mutex_;
  std::optional<TcpDiag> diag_;
  ConnectionTotals totals_;
};

}  // namespace trainyard::agent
