// Which task is at the other end of a connection, by the membership. Pure.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/traffic/tcp_diag.h"
#include "trainyard/v1/membership.pb.h"

namespace trainyard::agent {

// What the connections of a task may be with whom it is not known.
inline constexpr const char* kOtherPeer = "other";

// A program opens connections to the ports of other tasks, and takes them at its own. Where each
// task has an address of its own (pods), addresses say who is who. Tasks that share one (local
// runs, the host's network) are told apart by the process that holds a socket.
//
// Thread-compatible.
class Peers {
 public:
  // The task that holds the socket with this inode: its name ("ps-0"); nothing when not known.
  using OwnerOf = std::function<std::optional<std::string>(std::uint32_t inode)>;

  // `self` takes connections at `port`. Members without an address are passed over.
  Peers(const v1::Membership& membership, const v1::TaskId& self, int port);

  // The name of the peer of a connection of this task, kOtherPeer where that is not known; nothing
  // when the connection is not this task's. `all`: every connection of the network namespace.
  std::optional<std::string> peerOf(const TcpConnection& connection,
                                    const std::vector<TcpConnection>& all,
                                    const OwnerOf& ownerOf) const;
  // Inodes of the sockets whose owner peerOf() would ask for.
  std::set<std::uint32_t> undecided(const std::vector<TcpConnection>& all) const;

 private:
  struct Member {
    TcpEnd end;
    std::string name;
  };
  // The member that takes connections at `end`, but this task; null: none.
  const Member* dialled(const TcpEnd& end) const;
  // The members at an address.
  std::vector<const Member*> at(const TcpEnd& end) const;
  // The other end of a connection within this network namespace; null: elsewhere.
  static const TcpConnection* otherEnd(const TcpConnection& connection,
                                       const std::vector<TcpConnection>& all);

  const std::string self_;
  const int port_;
  std::vector<Member> members_;
};

}  // namespace trainyard::agent
