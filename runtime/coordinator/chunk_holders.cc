#include "runtime/coordinator/chunk_holders.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/coordinator/incarnation.h"

namespace trainyard::runtime {

ChunkHolders::ChunkHolders(const CoordinatorConfig& config)
    : chunks_(config.chunks),
      grid_ps_(config.grid_ps),
      replicate_(config.tickets ? config.replicate_pushes : config.replicate) {}

bool ChunkHolders::holds(std::uint32_t ps) const {
  const auto server = static_cast<int>(ps);
  const auto is_it = [&](const std::vector<int>& servers) {
    return std::find(servers.begin(), servers.end(), server) != servers.end();
  };
  return is_it(held_.map.ps) || is_it(held_.replicas);
}

// (Not by the server's version: a report from before it had loaded anything may come late.)
bool ChunkHolders::owns(const MemberKey& key, const Member& member) const {
  if (key.role != v1::ROLE_PS || !member.in_epoch) return false;
  if (!elastic()) return member.report.parameter_bytes() > 0;
  const std::vector<int>& servers = next_.map.ps;
  return std::find(servers.begin(), servers.end(), static_cast<int>(key.index)) != servers.end();
}

bool ChunkHolders::keeps(const MemberKey& key, const v1::EpochInfo& epoch) const {
  if (key != keyOfServer(kWorkerKeeper) || !epoch.replicated()) return false;
  const std::vector<int>& keepers = next_.replicas;
  return next_.copies.contains(kWorkerKeeper) ||
         std::find(keepers.begin(), keepers.end(), kWorkerKeeper) != keepers.end();
}

void ChunkHolders::rememberHolders(const v1::EpochInfo& epoch) {
  held_epoch_ = epoch.epoch();
  held_by_.clear();
  for (const v1::EpochMember& member : epoch.members()) {
    const MemberKey key = keyOf(member.id());
    if (key.role == v1::ROLE_PS) held_by_[static_cast<int>(key.index)] = member.incarnation();
    if (key == keyOfServer(kWorkerKeeper)) held_by_[kWorkerKeeper] = member.incarnation();
  }
}

bool ChunkHolders::adopt(const v1::EpochInfo& epoch) {
  Layout layout;
  layout.map = initialMap(chunks_, grid_ps_);
  if (!epoch.chunk_ps().empty()) layout.map.ps = {epoch.chunk_ps().begin(), epoch.chunk_ps().end()};
  if (layout.map.ps.size() != chunks_.size()) return false;
  layout.map.servers.clear();
  for (const v1::EpochMember& member : epoch.members()) {
    if (member.id().role() == v1::ROLE_PS)
      layout.map.servers.insert(static_cast<int>(member.id().index()));
  }
  layout.target = layout.map;
  if (!epoch.target_ps().empty()) {
    layout.target.ps = {epoch.target_ps().begin(), epoch.target_ps().end()};
    layout.replicas = {epoch.replica_ps().begin(), epoch.replica_ps().end()};
  } else if (epoch.replicated()) {
    for (const int holder : layout.map.ps)
      layout.replicas.push_back(replicaServer(layout.map.servers, holder));
  }
  for (const v1::PartCopy& copy : epoch.copies()) layout.copies[copy.ps()].insert(copy.chunk());
  held_ = std::move(layout);
  rememberHolders(epoch);
  return true;
}

bool ChunkHolders::allKnown(const Membership& membership) const {
  const std::set<int>& servers = held_.map.servers;
  return std::all_of(servers.begin(), servers.end(), [&](int server) {
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
  here_ = awaited;
  if (elastic()) {
    held.lost = held_.map.ps.empty();
    listReplicas(membership);
    std::map<int, std::optional<Holding>> own;
    for (const int server : held_.map.ps) {
      if (!own.contains(server)) own[server] = ownOf(server, membership);
    }
    givers_.clear();
    for (std::uint32_t chunk = 0; chunk < held_.map.ps.size(); ++chunk) {
      const Holding holding = holdingOf(chunk, own);
      givers_.push_back(holding.server);
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

bool ChunkHolders::isSame(int server, const Membership& membership) const {
  const auto by = held_by_.find(server);
  return by != held_by_.end() &&
         same(by->second, membership.find(keyOfServer(server))->report.incarnation());
}

// What a server has of its own. Not a process that was started since: what it has fetched for
// epochs that came to nothing need not be all of it.
std::optional<ChunkHolders::Holding> ChunkHolders::ownOf(int server,
                                                         const Membership& membership) const {
  if (!here_.contains(keyOfServer(server)) || !isSame(server, membership)) return std::nullopt;
  const v1::ShardState& shard = membership.find(keyOfServer(server))->report.shard();
  if (shard.empty() || shard.max_version() < 0) return std::nullopt;
  return Holding{server, shard.min_version(), shard.max_version()};
}

void ChunkHolders::listReplicas(const Membership& membership) {
  replicas_.clear();
  for (const int keeper : std::set<int>(held_.replicas.begin(), held_.replicas.end())) {
    if (keeper < 0 || !here_.contains(keyOfServer(keeper))) continue;
    const v1::ShardState& shard = membership.find(keyOfServer(keeper))->report.shard();
    if (shard.empty()) continue;
    for (const v1::ChunkReplica& replica : shard.replicas())
      replicas_[keeper][replica.chunk()] = replica.version();
  }
}

ChunkHolders::Holding ChunkHolders::holdingOf(
    std::uint32_t chunk, const std::map<int, std::optional<Holding>>& own) const {
  if (const auto& holder = own.at(held_.map.ps[chunk])) return *holder;
  Holding none{-1, std::numeric_limits<std::int64_t>::max(), -1};
  if (chunk >= held_.replicas.size()) return none;
  const auto keeper = replicas_.find(held_.replicas[chunk]);
  if (keeper == replicas_.end()) return none;
  const auto version = keeper->second.find(chunk);
  if (version == keeper->second.end()) return none;
  return {keeper->first, version->second, version->second};
}

// The first worker takes part, and others can reach what it keeps.
bool ChunkHolders::canKeep(const Membership& membership) const {
  const Member* member = membership.find(keyOfServer(kWorkerKeeper));
  return member != nullptr && member->in_epoch && isHere(kWorkerKeeper, membership);
}

// Others can reach what it has, or is to have.
bool ChunkHolders::isHere(int server, const Membership& membership) const {
  if (!here_.contains(keyOfServer(server))) return false;
  if (server != kWorkerKeeper) return true;
  const Member& member = *membership.find(keyOfServer(server));
  return member.report.keeper_port() != 0 && !member.place.ip().empty();
}

bool ChunkHolders::hasCopied(int server, const Membership& membership) const {
  const Member* member = membership.find(keyOfServer(server));
  return member != nullptr && isSame(server, membership) &&
         member->report.shard().copied_epoch() == held_epoch_;
}

bool ChunkHolders::allCopied(const Membership& membership) const {
  return std::all_of(held_.copies.begin(), held_.copies.end(),
                     [&](const auto& copy) { return hasCopied(copy.first, membership); });
}

bool ChunkHolders::copied(const Membership& membership) const {
  return !held_.copies.empty() && allCopied(membership);
}

int ChunkHolders::unguarded() const {
  return static_cast<int>(std::count(held_.replicas.begin(), held_.replicas.end(), -1));
}

// Or all but its newest updates, which it gets when the epoch is prepared.
bool ChunkHolders::has(int server, std::uint32_t part, const Membership& membership) const {
  if (!isHere(server, membership)) return false;
  if (givers_[part] == server) return true;
  const auto replicas = replicas_.find(server);
  const bool keeps = part < held_.replicas.size() && held_.replicas[part] == server;
  if (keeps && replicas != replicas_.end() && replicas->second.contains(part)) return true;
  const auto copies = held_.copies.find(server);
  return copies != held_.copies.end() && copies->second.contains(part) &&
         hasCopied(server, membership);
}

ChunkMap ChunkHolders::lastTarget() const {
  return held_.target.ps.empty() ? initialMap(chunks_, grid_ps_) : held_.target;
}

bool ChunkHolders::staysFor(std::uint32_t ps, const Membership& membership) const {
  std::set<int> servers;
  for (const MemberKey& key : here_) {
    if (key.role == v1::ROLE_PS && membership.find(key)->wanted)
      servers.insert(static_cast<int>(key.index));
  }
  if (servers.empty() || givers_.size() != chunks_.size()) return false;
  const ChunkMap target = moveChunks(chunks_, lastTarget(), servers);
  for (std::uint32_t part = 0; part < chunks_.size(); ++part) {
    if (!chunks_[part].rows || givers_[part] != static_cast<int>(ps)) continue;
    if (!has(target.ps[part], part, membership)) return true;
  }
  return false;
}

void ChunkHolders::place(bool kept, bool within_step, const Membership& membership,
                         v1::EpochInfo& epoch, Outbox& out) {
  if (!elastic()) return;
  std::set<int> members, servers;
  for (const auto& [key, member] : membership.members()) {
    if (key.role != v1::ROLE_PS || !member.in_epoch) continue;
    members.insert(static_cast<int>(key.index));
    if (member.wanted || within_step) servers.insert(static_cast<int>(key.index));
  }
  const bool replicated = replicate_ && (servers.size() > 1 || canKeep(membership));
  epoch.set_replicated(replicated);
  const ChunkMap before = lastTarget();
  if (kept) {
    const LayoutStart start{givers_, members, [&](int server, std::uint32_t part) {
                              return has(server, part, membership);
                            }};
    next_ = layoutFrom(start, chunks_, before, servers, replicated);
  } else {
    next_ = settledLayout(chunks_, before, members, replicated);
    held_ = {};
  }
  const std::vector<int> from = kept ? givers_ : next_.map.ps;
  announce(kept, from, epoch);
  addSources(from, membership, epoch, out);
  tellCopies(epoch, out);
}

void ChunkHolders::announce(bool kept, const std::vector<int>& from, v1::EpochInfo& epoch) const {
  const bool plain = next_.plain();
  const std::vector<int>& ps = next_.map.ps;
  if (ps != initialMap(chunks_, grid_ps_).ps || (kept && ps != from) || !plain)
    epoch.mutable_chunk_ps()->Add(ps.begin(), ps.end());
  if (kept && ps != from) epoch.mutable_former_ps()->Add(from.begin(), from.end());
  if (plain) return;
  epoch.mutable_replica_ps()->Add(next_.replicas.begin(), next_.replicas.end());
  epoch.mutable_target_ps()->Add(next_.target.ps.begin(), next_.target.ps.end());
  for (const auto& [server, parts] : next_.copies) {
    for (const std::uint32_t part : parts) {
      v1::PartCopy* copy = epoch.add_copies();
      copy->set_chunk(part);
      copy->set_ps(server);
    }
  }
}

// Who gives chunks, and all who take part: not every member has the membership of the epoch.
void ChunkHolders::addSources(const std::vector<int>& from, const Membership& membership,
                              v1::EpochInfo& epoch, Outbox& out) const {
  std::set<int> givers;
  std::int64_t moved = 0;
  std::int64_t bytes = 0;
  std::int64_t parts = 0;
  for (std::size_t id = 0; id < next_.map.ps.size(); ++id) {
    if (next_.map.ps[id] == from[id]) continue;
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
  std::string what = fmt::format("{} of {} chunks", moved, std::ssize(next_.map.ps) - all_parts);
  if (all_parts > 0) what += fmt::format(" and {} of {} parts of tables", parts, all_parts);
  out.log(fmt::format("epoch {} needs {} on other servers, {} bytes of weights", epoch.epoch(),
                      what, bytes));
}

void ChunkHolders::tellCopies(const v1::EpochInfo& epoch, Outbox& out) const {
  std::vector<std::string> copiers;
  for (const auto& [server, parts] : next_.copies)
    copiers.push_back(fmt::format("{} copies {}", serverName(server), parts.size()));
  if (copiers.empty()) return;
  const auto alone = std::count(next_.replicas.begin(), next_.replicas.end(), -1);
  out.log(fmt::format(
      "epoch {}: of {} parts of tables {} are in one place only; while training goes on {}",
      epoch.epoch(), std::ranges::count(chunks_, true, &ChunkLoad::rows), alone,
      join(copiers, ", ")));
}

void ChunkHolders::begin(const v1::EpochInfo& epoch) {
  former_unguarded_ = unguarded();
  held_ = next_;
  rememberHolders(epoch);
}

}  // namespace trainyard::runtime
