#include "runtime/coordinator/chunk_holders.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "fmt/format.h"
#include "runtime/coordinator/incarnation.h"

namespace trainyard::runtime {

ChunkHolders::ChunkHolders(const CoordinatorConfig& config)
    : chunks_(config.chunks),
      grid_ps_(config.grid_ps),
      replicate_(config.tickets ? config.replicate_pushes : config.replicate) {}

// Of held_.
std::set<int> ChunkHolders::holders() const {
  return {held_.ps.begin(), held_.ps.end()};
}

bool ChunkHolders::holds(std::uint32_t ps) const {
  const std::set<int> servers = holders();
  return std::any_of(servers.begin(), servers.end(), [&](int server) {
    const int keeper = held_replicated_ ? replicaServer(held_.servers, server) : server;
    return server == static_cast<int>(ps) || keeper == static_cast<int>(ps);
  });
}

// (Not by the server's version: a report from before it had loaded anything may come late.)
bool ChunkHolders::owns(const MemberKey& key, const Member& member) const {
  if (key.role != v1::ROLE_PS || !member.in_epoch) return false;
  if (!elastic()) return member.report.parameter_bytes() > 0;
  return std::find(next_.ps.begin(), next_.ps.end(), static_cast<int>(key.index)) != next_.ps.end();
}

bool ChunkHolders::keeps(const MemberKey& key, const v1::EpochInfo& epoch) const {
  return key == keyOfServer(kWorkerKeeper) && epoch.replicated() && next_.servers.size() == 1;
}

void ChunkHolders::rememberHolders(const v1::EpochInfo& epoch) {
  held_by_.clear();
  for (const v1::EpochMember& member : epoch.members()) {
    if (member.id().role() == v1::ROLE_PS)
      held_by_[static_cast<int>(member.id().index())] = member.incarnation();
  }
}

bool ChunkHolders::adopt(const v1::EpochInfo& epoch) {
  ChunkMap map = initialMap(chunks_, grid_ps_);
  if (!epoch.chunk_ps().empty()) map.ps = {epoch.chunk_ps().begin(), epoch.chunk_ps().end()};
  if (map.ps.size() != chunks_.size()) return false;
  map.servers.clear();
  for (const v1::EpochMember& member : epoch.members()) {
    if (member.id().role() == v1::ROLE_PS)
      map.servers.insert(static_cast<int>(member.id().index()));
  }
  held_ = std::move(map);
  held_replicated_ = epoch.replicated();
  rememberHolders(epoch);
  return true;
}

bool ChunkHolders::allKnown(const Membership& membership) const {
  return std::all_of(held_.servers.begin(), held_.servers.end(), [&](int server) {
    return !holds(static_cast<std::uint32_t>(server)) ||
           membership.find(keyOfServer(server)) != nullptr;
  });
}

bool ChunkHolders::allPlaced(const Membership& membership,
                             const std::set<MemberKey>& awaited) const {
  if (!elastic()) return true;
  return std::none_of(awaited.begin(), awaited.end(), [&](const MemberKey& key) {
    const Member& member = *membership.find(key);
    const bool keeper = key == keyOfServer(kWorkerKeeper) && member.report.keeper_port() != 0;
    if (key.role != v1::ROLE_PS && !keeper) return false;
    // A membership written by hand has no lives.
    const std::uint32_t known = member.place.created();
    return known > 0 && member.report.incarnation().created() > known;
  });
}

Held ChunkHolders::findHeld(const Membership& membership, const std::set<MemberKey>& awaited) {
  Held held;
  held.lowest = std::numeric_limits<std::int64_t>::max();
  if (elastic()) {
    const std::set<int> servers = holders();
    held.lost = servers.empty();
    givers_.clear();
    for (const int server : servers) {
      const Holding holding = holdingOf(server, membership, awaited);
      givers_[server] = holding.server;
      held.lost = held.lost || holding.server < 0;
      held.lowest = std::min(held.lowest, holding.lowest);
      held.highest = std::max(held.highest, holding.highest);
    }
    return held;
  }
  for (const MemberKey& key : awaited) {
    if (key.role != v1::ROLE_PS) continue;
    const v1::ShardState& shard = membership.find(key)->report.shard();
    held.lost = held.lost || shard.empty();
    if (shard.max_version() < 0) continue;  // a server without chunks
    held.lowest = std::min(held.lowest, shard.min_version());
    held.highest = std::max(held.highest, shard.max_version());
  }
  return held;
}

// Who has the chunks of a server of held_. Not a process that was started since: what it has
// fetched for epochs that came to nothing need not be all of them.
ChunkHolders::Holding ChunkHolders::holdingOf(int server, const Membership& membership,
                                              const std::set<MemberKey>& awaited) const {
  const MemberKey key = keyOfServer(server);
  if (awaited.contains(key)) {
    const v1::MemberReport& report = membership.find(key)->report;
    const v1::ShardState& shard = report.shard();
    const auto by = held_by_.find(server);
    const bool since = by == held_by_.end() || !same(by->second, report.incarnation());
    if (!since && !shard.empty() && shard.max_version() >= 0)
      return {server, shard.min_version(), shard.max_version()};
  }
  return replicasOf(server, membership, awaited)
      .value_or(Holding{-1, std::numeric_limits<std::int64_t>::max(), -1});
}

std::optional<ChunkHolders::Holding> ChunkHolders::replicasOf(
    int server, const Membership& membership, const std::set<MemberKey>& awaited) const {
  if (!held_replicated_) return std::nullopt;
  const int keeper = replicaServer(held_.servers, server);
  const MemberKey key = keyOfServer(keeper);
  if (!awaited.contains(key)) return std::nullopt;
  const v1::ShardState& shard = membership.find(key)->report.shard();
  if (shard.empty()) return std::nullopt;
  std::map<std::uint32_t, std::int64_t> versions;
  for (const v1::ChunkReplica& replica : shard.replicas())
    versions[replica.chunk()] = replica.version();
  Holding holding{keeper, std::numeric_limits<std::int64_t>::max(), -1};
  for (std::size_t id = 0; id < held_.ps.size(); ++id) {
    if (held_.ps[id] != server) continue;
    const auto found = versions.find(static_cast<std::uint32_t>(id));
    if (found == versions.end()) return std::nullopt;
    holding.lowest = std::min(holding.lowest, found->second);
    holding.highest = std::max(holding.highest, found->second);
  }
  return holding;
}

// The first worker takes part, and others can reach what it keeps.
bool ChunkHolders::canKeep(const Membership& membership) const {
  const Member* member = membership.find(keyOfServer(kWorkerKeeper));
  return member != nullptr && member->in_epoch && member->report.keeper_port() != 0 &&
         !member->place.ip().empty();
}

void ChunkHolders::place(bool kept, const Membership& membership, v1::EpochInfo& epoch,
                         Outbox& out) {
  if (!elastic()) return;
  const ChunkMap initial = initialMap(chunks_, grid_ps_);
  const ChunkMap before = held_.ps.empty() ? initial : held_;
  std::set<int> servers;
  for (const auto& [key, member] : membership.members()) {
    if (key.role == v1::ROLE_PS && member.in_epoch) servers.insert(static_cast<int>(key.index));
  }
  next_ = moveChunks(chunks_, before, servers);
  epoch.set_replicated(replicate_ && (servers.size() > 1 || canKeep(membership)));
  std::vector<int> from = before.ps;
  if (kept) {
    for (int& server : from) server = givers_.at(server);
  }
  if (next_.ps != initial.ps || (kept && next_.ps != from))
    epoch.mutable_chunk_ps()->Add(next_.ps.begin(), next_.ps.end());
  if (!kept) {
    held_ = {};
  } else if (next_.ps != from) {
    epoch.mutable_former_ps()->Add(from.begin(), from.end());
  }
  addSources(kept ? from : next_.ps, membership, epoch, out);
}

// Who gives chunks, and all who take part: not every member has the membership of the epoch.
void ChunkHolders::addSources(const std::vector<int>& from, const Membership& membership,
                              v1::EpochInfo& epoch, Outbox& out) const {
  std::set<int> givers;
  std::int64_t moved = 0;
  std::int64_t bytes = 0;
  std::int64_t parts = 0;
  for (std::size_t id = 0; id < next_.ps.size(); ++id) {
    if (next_.ps[id] == from[id]) continue;
    givers.insert(from[id]);
    ++(chunks_[id].rows ? parts : moved);
    bytes += chunks_[id].bytes;
  }
  const auto add = [&epoch](int server, const Member& member, std::uint32_t port) {
    v1::ChunkSource* source = epoch.add_sources();
    source->set_ps(static_cast<std::uint32_t>(server));
    *source->mutable_incarnation() = member.report.incarnation();
    source->set_address(fmt::format("{}:{}", member.place.ip(), port));
  };
  for (const auto& [key, member] : membership.members()) {
    if (key.role != v1::ROLE_PS) continue;
    const auto server = static_cast<int>(key.index);
    if (givers.contains(server) || member.in_epoch) add(server, member, member.place.port());
  }
  const MemberKey keeper = keyOfServer(kWorkerKeeper);
  if (givers.contains(kWorkerKeeper) || keeps(keeper, epoch)) {
    const Member& member = membership.members().at(keeper);
    add(kWorkerKeeper, member, member.report.keeper_port());
  }
  if (moved + parts == 0) return;
  const auto all_parts = std::ranges::count(chunks_, true, &ChunkLoad::rows);
  std::string what = fmt::format("{} of {} chunks", moved, std::ssize(next_.ps) - all_parts);
  if (all_parts > 0) what += fmt::format(" and {} of {} parts of tables", parts, all_parts);
  out.log(fmt::format("epoch {} needs {} on other servers, {} bytes of weights", epoch.epoch(),
                      what, bytes));
}

void ChunkHolders::begin(const v1::EpochInfo& epoch) {
  held_ = next_;
  held_replicated_ = epoch.replicated();
  rememberHolders(epoch);
}

}  // namespace trainyard::runtime
