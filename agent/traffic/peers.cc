#include "agent/traffic/peers.h"

#include <algorithm>

#include "agent/membership/identity.h"

namespace trainyard::agent {

Peers::Peers(const v1::Membership& membership, const v1::TaskId& self, int port)
    : self_(taskName(self)), port_(port) {
  for (const v1::MemberTask& task : membership.tasks()) {
    const StatusOr<TcpEnd> end = tcpEnd(task.ip(), static_cast<int>(task.port()));
    if (end.ok()) members_.push_back({*end, taskName(task.id())});
  }
}

const Peers::Member* Peers::dialled(const TcpEnd& end) const {
  for (const Member& member : members_) {
    if (member.end == end && member.name != self_) return &member;
  }
  return nullptr;
}

std::vector<const Peers::Member*> Peers::at(const TcpEnd& end) const {
  std::vector<const Member*> found;
  for (const Member& member : members_) {
    if (member.end.ip == end.ip) found.push_back(&member);
  }
  return found;
}

const TcpConnection* Peers::otherEnd(const TcpConnection& connection,
                                     const std::vector<TcpConnection>& all) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const TcpConnection& other) {
    return other.local == connection.remote && other.remote == connection.local;
  });
  return found != all.end() ? &*found : nullptr;
}

std::optional<std::string> Peers::peerOf(const TcpConnection& connection,
                                         const std::vector<TcpConnection>& all,
                                         const OwnerOf& ownerOf) const {
  if (connection.local.port == port_) {
    const std::vector<const Member*> there = at(connection.remote);
    if (there.size() == 1) return there[0]->name;
    const TcpConnection* other = there.empty() ? nullptr : otherEnd(connection, all);
    return other != nullptr ? ownerOf(other->inode).value_or(kOtherPeer) : kOtherPeer;
  }
  const Member* member = dialled(connection.remote);
  if (member == nullptr) return std::nullopt;
  // Alone at its address, or known to hold the socket.
  const bool shared = at(connection.local).size() != 1;
  if (shared && ownerOf(connection.inode) != self_) return std::nullopt;
  return member->name;
}

std::set<std::uint32_t> Peers::undecided(const std::vector<TcpConnection>& all) const {
  std::set<std::uint32_t> inodes;
  const OwnerOf note = [&inodes](std::uint32_t inode) {
    if (inode != 0) inodes.insert(inode);
    return std::nullopt;
  };
  for (const TcpConnection& connection : all) (void)peerOf(connection, all, note);
  return inodes;
}

}  // namespace trainyard::agent
