// Connections between all ranks of a group: two for each pair, one for each direction of data, each
// opened by its sender. Both sides prove that they know the job's token before either says more
// than its protocol's version; the token itself is not sent (proofs are HKDF of it and both sides'
// random numbers), so that neither a stranger who connects nor one who listens learns it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "base/process/unique_fd.h"
#include "runtime/stream/stream.h"

namespace trainyard::runtime::transport {

// A port that peers connect to. Stays open from group to group: a rank that is early finds it.
class TcpListener {
 public:
  // `address` is numeric, "127.0.0.1" or "::1"; port 0 takes a free one. UNAVAILABLE and other
  // codes of errno naming both.
  static StatusOr<TcpListener> listen(const std::string& address, std::uint16_t port);
  int fd() const { return fd_.get(); }
  std::uint16_t port() const { return port_; }

 private:
  TcpListener(UniqueFd fd, std::uint16_t port) : fd_(std::move(fd)), port_(port) {}
  UniqueFd fd_;
  std::uint16_t port_ = 0;
};

struct TcpAddress {
  std::string host;  // numeric
  std::uint16_t port = 0;
};

struct MeshOptions {
  int rank = 0;
  std::vector<TcpAddress> addresses;  // by rank; that of `rank` itself is not used
  std::string token;                  // of the job
  std::uint64_t epoch = 0;            // of the group
  // Of all connections, around the proof of the token as around the rest; null: none. The same on
  // all ranks.
  std::shared_ptr<const stream::Encryption> encryption = {};
  Duration timeout = std::chrono::seconds(60);
  // Asked a few times a second: true ends the attempt with CANCELLED.
  std::function<bool()> cancelled = {};
};

struct TcpMesh {
  struct Pair {
    std::unique_ptr<stream::Stream> out;  // data to the peer; control frames from it
    std::unique_ptr<stream::Stream> in;   // data from the peer; control frames to it
  };
  int rank = 0;
  std::uint64_t epoch = 0;
  std::vector<Pair> pairs;  // by rank; that of `rank` itself is empty
};

// Connects until every pair has both connections. Peers may start in any order; refused connections
// are tried again, a peer that is still in an older epoch is waited for. What a stranger sends, or
// leaves unsent, does not disturb this: one with another version is named in the log and left out.
// Errors, with the blamed rank: DEADLINE_EXCEEDED naming all ranks that are missing and why
// (whoever stands at a rank's address with another version and no proof among them);
// FAILED_PRECONDITION when a peer proves that it has the token but has another epoch, size or
// version; INVALID_ARGUMENT for an address that is not numeric or more than kMaxRanks.
StatusOr<TcpMesh> connectMesh(const TcpListener& listener, const MeshOptions& options);

}  // namespace trainyard::runtime::transport
