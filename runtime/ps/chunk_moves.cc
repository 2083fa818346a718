#include "runtime/ps/chunk_moves.h"

#include <algorithm>

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
  if (ps != kWorkerKeeper) return servers.contains(ps);
  const auto& copies = epoch.copies();
  if (std::any_of(copies.begin(), copies.end(), [&](const auto& c) { return c.ps() == ps; }))
    return true;
  const auto& replicas = epoch.replica_ps();
  if (!replicas.empty()) return std::find(replicas.begin(), replicas.end(), ps) != replicas.end();
  return epoch.replicated() && servers.size() == 1;
}

ReplicaTargets::ReplicaTargets(const v1::EpochInfo& epoch)
    : replicated_(epoch.replicated()),
      servers_(serversIn(epoch)),
      by_chunk_(epoch.replica_ps().begin(), epoch.replica_ps().end()) {}

int ReplicaTargets::of(int ps, std::uint32_t chunk) const {
  if (!replicated_ || ps == kWorkerKeeper) return -1;
  return chunk < by_chunk_.size() ? by_chunk_[chunk] : replicaServer(servers_, ps);
}

std::vector<std::uint32_t> chunksToReplicate(const std::vector<int>& ps_of_chunk,
                                             const v1::EpochInfo& epoch, int ps) {
  std::vector<std::uint32_t> chunks;
  if (!epoch.replicated()) return chunks;
  const ReplicaTargets targets(epoch);
  const std::vector<int> server_of = serversOf(ps_of_chunk, epoch);
  for (std::uint32_t id = 0; id < server_of.size(); ++id) {
    if (targets.of(server_of[id], id) == ps) chunks.push_back(id);
  }
  return chunks;
}

std::set<std::uint32_t> unguardedChunks(const std::vector<int>& ps_of_chunk,
                                        const v1::EpochInfo& epoch, int ps) {
  std::set<std::uint32_t> chunks;
  const ReplicaTargets targets(epoch);
  const std::vector<int> server_of = serversOf(ps_of_chunk, epoch);
  for (std::uint32_t id = 0; epoch.replicated() && id < server_of.size(); ++id) {
    if (server_of[id] == ps && targets.of(ps, id) < 0) chunks.insert(id);
  }
  return chunks;
}

int replicaSource(const std::vector<int>& ps_of_chunk, const v1::EpochInfo& epoch,
                  std::uint32_t chunk, bool part) {
  if (part && !epoch.former_ps().empty()) return epoch.former_ps(static_cast<int>(chunk));
  return serversOf(ps_of_chunk, epoch)[chunk];
}

std::map<int, v1::Incarnation> sourcesOf(const v1::EpochInfo& epoch) {
  std::map<int, v1::Incarnation> sources;
  for (const v1::ChunkSource& source : epoch.sources())
    sources[static_cast<int>(source.ps())] = source.incarnation();
  return sources;
}

v1::Incarnation incarnationOf(const v1::EpochInfo& epoch, int ps) {
  return sourcesOf(epoch)[ps];
}

std::vector<std::uint32_t> partsToCopy(const v1::EpochInfo& epoch, int ps) {
  std::vector<std::uint32_t> parts;
  for (const v1::PartCopy& copy : epoch.copies()) {
    if (copy.ps() == ps) parts.push_back(copy.chunk());
  }
  return parts;
}

std::map<std::uint32_t, std::set<int>> followersIn(const v1::EpochInfo& epoch) {
  std::map<std::uint32_t, std::set<int>> followers;
  for (const v1::PartCopy& copy : epoch.copies()) followers[copy.chunk()].insert(copy.ps());
  return followers;
}

}  // namespace trainyard::runtime::ps
