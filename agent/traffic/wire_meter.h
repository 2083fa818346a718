// Bytes on the wire of a task: what its connections carried, whatever program serves them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "agent/membership/identity.h"
#include "agent/traffic/interface_meter.h"
#include "agent/traffic/socket_owners.h"
#include "agent/traffic/tcp_diag.h"
#include "agent/traffic/wire_bytes.h"
#include "base/core/clock.h"

namespace trainyard::agent {

class Peers;

struct WireReading {
  WireBytes total;
  std::map<std::string, WireBytes> peers;  // by task ("worker-0", or kOtherPeer); may be empty
};

// What one connection counted so far.
struct CountedConnection {
  std::uint64_t cookie = 0;
  WireBytes bytes = {};
  std::string peer = {};  // of the first time that the connection was told of; "": of no interest
};

// Adds up connections that come and go. Pure; not thread-safe.
class ConnectionTotals {
 public:
  // All connections of now.
  void onList(const std::vector<CountedConnection>& connections);
  // Last counters of connections that are no more.
  void onEnded(const std::vector<CountedConnection>& connections);
  WireReading total() const;
  bool knows(std::uint64_t cookie) const { return open_.contains(cookie); }
  // Whether one that has left the list has not been told of yet: its last bytes are missing.
  bool awaitsEnds() const;
  // Connections still kept one by one.
  std::size_t size() const { return open_.size(); }

 private:
  struct Connection {
    WireBytes bytes;
    std::string peer;
    int missed = 0;  // lists in a row without it
  };
  std::map<std::uint64_t, Connection> open_;  // by cookie
  WireReading ended_;
};

// Where a task's connections lead.
struct WireScope {
  TaskIdentity self;
  // The newest membership; null before the first.
  std::function<std::shared_ptr<const v1::Membership>()> membership;
};

// Thread-safe.
class WireMeter {
 public:
  // Counts the connections whose local port is `port`, in the network namespace of this process.
  explicit WireMeter(int port);
  // Counts also those that the task opens to ports of others in its membership, by peer. A
  // connection that is opened and closed between two reads is counted where it was taken, and where
  // it was opened only if the task has an address of its own.
  WireMeter(int port, WireScope scope);
  // With a scope or none, and a kernel that tells of connections or does not.
  WireMeter(int port, std::optional<WireScope> scope, StatusOr<TcpDiag> diag);

  // Of a task with an address of its own: what read() says where the kernel does not tell of
  // connections. To be called before the first read().
  void fallBackTo(InterfaceMeter meter);

  // Since the meter was made, up to now. Nothing where the kernel does not say; the reason was
  // logged once.
  std::optional<WireReading> read();
  // Once the program has ended: waits until the kernel has told of the last connections, so that
  // read() says all that they carried.
  void settle(TimePoint deadline);

 private:
  WireReading readKernel();  // with mutex_ held and diag_ set
  // Those that concern the task, with their peers. `all`: as last listed.
  std::vector<CountedConnection> counted(const std::vector<TcpConnection>& connections,
                                         const std::vector<TcpConnection>& all,
                                         const Peers* peers) const;

  const int port_;
  const std::optional<WireScope> scope_;
  std::optional<SocketOwners> owners_;
  std::mutex mutex_;
  std::optional<TcpDiag> diag_;
  std::optional<InterfaceMeter> interface_;
  ConnectionTotals totals_;
};

}  // namespace trainyard::agent
