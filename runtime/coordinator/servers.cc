// Which server holds which chunk, from one epoch to the next. What counts is the map of the newest
// epoch that began: until the next one begins everywhere, its holders keep what they give away.
#include <algorithm>
#include <limits>
#include <utility>

#include "fmt/format.h"
#include "runtime/coordinator/coordinator.h"

namespace trainyard::runtime {

// Of the epoch that began last: chunks or replicas.
bool Coordinator::holdsChunks(std::uint32_t ps) const {
  return std::any_of(held_.ps.begin(), held_.ps.end(), [&](int server) {
    const int keeper = held_replicated_ ? replicaServer(held_.servers, server) : server;
    return server == static_cast<int>(ps) || keeper == static_cast<int>(ps);
  });
}

// Of the epoch that runs. (Not by the server's version: a report from before it had loaded anything
// may come late.)
bool Coordinator::owns(const MemberKey& key, const Member& member) const {
  if (key.role != v1::ROLE_PS || !member.in_epoch) return false;
  if (!elastic()) return member.report.parameter_bytes() > 0;
  return std::find(next_.ps.begin(), next_.ps.end(), static_cast<int>(key.index)) != next_.ps.end();
}

// Where the servers are always the same: what it says it holds counts.
bool Coordinator::isHolder(const MemberKey& key, const Member& member, TimePoint now) const {
  return key.role == v1::ROLE_PS && awaited(key, member, now);
}

Coordinator::Held Coordinator::heldByServers(TimePoint now) {
  Held held;
  held.lowest = std::numeric_limits<std::int64_t>::max();
  if (elastic()) {
    const std::set<int> servers(held_.ps.begin(), held_.ps.end());
    held.lost = servers.empty();
    givers_.clear();
    for (const int server : servers) {
      const Holding holding = holdingOf(server, now);
      givers_[server] = holding.server;
      held.lost = held.lost || holding.server < 0;
      held.lowest = std::min(held.lowest, holding.lowest);
      held.highest = std::max(held.highest, holding.highest);
    }
    return held;
  }
  for (const auto& [key, member] : members_) {
    if (!isHolder(key, member, now)) continue;
    const v1::ShardState& shard = member.report.shard();
    held.lost = held.lost || shard.empty();
    if (shard.max_version() < 0) continue;  // a server without chunks
    held.lowest = std::min(held.lowest, shard.min_version());
    held.highest = std::max(held.highest, shard.max_version());
  }
  return held;
}

// Within a step servers neither come nor go, so that what is held stays readable where it is.
bool Coordinator::takesPart(const MemberKey& key, const Member& member, bool within_step,
                            TimePoint now) const {
  if (!awaited(key, member, now)) return false;
  if (key.role == v1::ROLE_PS && !member.wanted) return within_step;
  return !(member.newcomer && within_step);
}

// The new epoch's map. Where nothing is held, all is loaded by it.
void Coordinator::placeChunks(bool kept) {
  if (!elastic()) return;
  const ChunkMap initial = initialMap(config_.chunks, config_.grid_ps);
  const ChunkMap before = held_.ps.empty() ? initial : held_;
  std::set<int> servers;
  for (const auto& [key, member] : members_) {
    if (key.role == v1::ROLE_PS && member.in_epoch) servers.insert(static_cast<int>(key.index));
  }
  next_ = moveChunks(config_.chunks, before, servers);
  const bool wanted = tickets_ ? config_.replicate_pushes : config_.replicate;
  epoch_.set_replicated(wanted && (servers.size() > 1 || canKeep()));
  std::vector<int> from = before.ps;
  if (kept) {
    for (int& server : from) server = givers_.at(server);
  }
  if (next_.ps != initial.ps || (kept && next_.ps != from))
    epoch_.mutable_chunk_ps()->Add(next_.ps.begin(), next_.ps.end());
  if (!kept) {
    held_ = {};
  } else if (next_.ps != from) {
    epoch_.mutable_former_ps()->Add(from.begin(), from.end());
  }
  addSources(kept ? from : next_.ps);
}

// Who gives chunks, and all who take part: not every member has the membership of the epoch.
void Coordinator::addSources(const std::vector<int>& from) {
  std::set<int> givers;
  std::int64_t moved = 0;
  std::int64_t bytes = 0;
  for (std::size_t id = 0; id < next_.ps.size(); ++id) {
    if (next_.ps[id] == from[id]) continue;
    givers.insert(from[id]);
    ++moved;
    bytes += config_.chunks[id].bytes;
  }
  for (auto& [key, member] : members_) {
    if (key.role != v1::ROLE_PS) continue;
    const auto server = static_cast<int>(key.index);
    if (givers.contains(server) || member.in_epoch) addSource(server, member);
  }
  const MemberKey keeper = keyOf(kWorkerKeeper);
  if (givers.contains(kWorkerKeeper) || keeps(keeper))
    addSource(kWorkerKeeper, members_.at(keeper));
  if (moved == 0) return;
  actions_.push_back(
      LogAction{fmt::format("epoch {} needs {} of {} chunks on other servers, {} bytes of weights",
                            epoch_.epoch(), moved, next_.ps.size(), bytes)});
}

void Coordinator::addSource(int server, Member& member) {
  member.source = !member.in_epoch;
  v1::ChunkSource* source = epoch_.add_sources();
  source->set_ps(static_cast<std::uint32_t>(server));
  *source->mutable_incarnation() = member.report.incarnation();
  const bool keeper = server == kWorkerKeeper;
  source->set_address(fmt::format("{}:{}", member.place.ip(),
                                  keeper ? member.report.ring_port() : member.place.port()));
}

// All servers of the epoch have what it starts from: who only gave may go.
void Coordinator::chunksAreThere() {
  held_ = next_;
  held_replicated_ = epoch_.replicated();
  for (auto& [key, member] : members_) {
    member.source = false;
    if (key.role == v1::ROLE_PS && member.in_epoch) member.newcomer = false;
  }
}

}  // namespace trainyard::runtime
