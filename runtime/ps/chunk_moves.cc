#include "runtime/ps/chunk_moves.h"

#include <set>

#include "runtime/placement/moves.h"

namespace trainyard::runtime::ps {

std::vector<int> serversOf(const std::vector<int>& ps_of_chunk, const v1::EpochInfo& epoch) {
  if (epoch.chunk_ps().empty()) return ps_of_chunk;
  return {epoch.chunk_ps().begin(), epoch.chunk_ps().end()};
}

std::vector<std::uint32_t> chunksToFetch(const v1::EpochInfo& epoch, int ps) {
  std::vector<std::uint32_t> chunks;
  for (int id = 0; id < epoch.former_ps_size() && id < epoch.chunk_ps_size(); ++id) {
    if (epoch.chunk_ps(id) == ps && epoch.former_ps(id) != ps)
      chunks.push_back(static_cast<std::uint32_t>(id));
  }
  return chunks;
}

namespace {

std::set<int> serversIn(const v1::EpochInfo& epoch) {
  std::set<int> servers;
  for (const v1::EpochMember& member : epoch.members()) {
    if (member.id().role() == v1::ROLE_PS) servers.insert(static_cast<int>(member.id().index()));
  }
  return servers;
}

}  // namespace

bool servesIn(const v1::EpochInfo& epoch, int ps) {
  const std::set<int> servers = serversIn(epoch);
  if (ps == kWorkerKeeper) return epoch.replicated() && servers.size() == 1;
  return servers.contains(ps);
}

int replicaTarget(const v1::EpochInfo& epoch, int ps) {
  if (!epoch.replicated() || ps == kWorkerKeeper) return -1;
  return replicaServer(serversIn(epoch), ps);
}

std::vector<std::uint32_t> chunksToReplicate(const std::vector<int>& ps_of_chunk,
                                             const v1::EpochInfo& epoch, int ps) {
  std::vector<std::uint32_t> chunks;
  if (!epoch.replicated()) return chunks;
  const std::set<int> servers = serversIn(epoch);
  const std::vector<int> server_of = serversOf(ps_of_chunk, epoch);
  for (std::size_t id = 0; id < server_of.size(); ++id) {
    if (replicaServer(servers, server_of[id]) == ps)
      chunks.push_back(static_cast<std::uint32_t>(id));
  }
  return chunks;
}

}  // namespace trainyard::runtime::ps
