// What is held twice: the server after the one that holds a chunk (the first worker, where there is
// no other server) keeps a replica of it, which has taken every step that anybody knows the outcome
// of. And what the others know of the job when the
// coordinator itself is lost.
#include <algorithm>
#include <limits>

#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/coordinator/coordinator.h"
#include "runtime/coordinator/epoch_plan.h"
#include "runtime/coordinator/incarnation.h"
#include "runtime/coordinator/names.h"

namespace trainyard::runtime {

// Whose process it is.
Coordinator::MemberKey Coordinator::keyOf(int server) {
  if (server == kWorkerKeeper) return {v1::ROLE_WORKER, 0};
  return {v1::ROLE_PS, static_cast<std::uint32_t>(server)};
}

// The first worker is there, and others can reach what it keeps.
bool Coordinator::canKeep() const {
  const auto member = members_.find(keyOf(kWorkerKeeper));
  return member != members_.end() && member->second.in_epoch &&
         member->second.report.ring_port() != 0 && !member->second.place.ip().empty();
}

// Whether it is the worker that keeps replicas in the epoch that is being prepared or runs.
bool Coordinator::keeps(const MemberKey& key) const {
  return key == keyOf(kWorkerKeeper) && epoch_.replicated() && next_.servers.size() == 1;
}

// Who has the chunks of a server of `held_`.
Coordinator::Holding Coordinator::holdingOf(int server, TimePoint now) const {
  const MemberKey key = keyOf(server);
  const auto member = members_.find(key);
  if (member != members_.end() && awaited(key, member->second, now)) {
    const v1::ShardState& shard = member->second.report.shard();
    if (!shard.empty() && shard.max_version() >= 0)
      return {server, shard.min_version(), shard.max_version()};
  }
  return replicasOf(server, now)
      .value_or(Holding{-1, std::numeric_limits<std::int64_t>::max(), -1});
}

std::optional<Coordinator::Holding> Coordinator::replicasOf(int server, TimePoint now) const {
  if (!held_replicated_) return std::nullopt;
  const int keeper = replicaServer(held_.servers, server);
  const MemberKey key = keyOf(keeper);
  const auto member = members_.find(key);
  if (member == members_.end() || !awaited(key, member->second, now)) return std::nullopt;
  const v1::ShardState& shard = member->second.report.shard();
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

// False: the map is of other chunks than this job's.
bool Coordinator::adoptMap(const v1::EpochInfo& epoch) {
  ChunkMap map = initialMap(config_.chunks, config_.grid_ps);
  if (!epoch.chunk_ps().empty()) map.ps = {epoch.chunk_ps().begin(), epoch.chunk_ps().end()};
  if (map.ps.size() != config_.chunks.size()) return false;
  map.servers.clear();
  for (const v1::EpochMember& member : epoch.members()) {
    if (member.id().role() == v1::ROLE_PS)
      map.servers.insert(static_cast<int>(member.id().index()));
  }
  held_ = std::move(map);
  held_replicated_ = epoch.replicated();
  return true;
}

// The newest epoch that anybody has seen compute; number 0: nobody has seen any.
v1::EpochInfo Coordinator::newestBegun() const {
  v1::EpochInfo epoch;
  for (const auto& [key, member] : members_) {
    if (member.joined && member.report.begun().epoch() > epoch.epoch())
      epoch = member.report.begun();
  }
  return epoch;
}

// Before the first epoch of this process: a server that the membership has left out may hold what
// others need, as the former coordinator knew.
void Coordinator::meetLeaver(const v1::MemberReport& report, const MemberKey& key) {
  const bool may_hold =
      key.role == v1::ROLE_PS && !report.shard().empty() && report.highest_epoch() > 0;
  if (!epochs_.empty() || over() || !elastic() || !may_hold || members_.contains(key)) return;
  if (report.job_uid() != config_.job_uid || report.revision() == 0) return;
  if (report.revision() > membership_.revision()) return;
  members_[key].wanted = false;
}

// Before the first epoch of this process: who held what in the one before. False: a server that
// did, and is to leave, is still waited for.
bool Coordinator::knowsHolders(TimePoint now) {
  if (!epochs_.empty() || !elastic()) return true;
  const v1::EpochInfo epoch = newestBegun();
  if (epoch.epoch() == 0 || !adoptMap(epoch)) return true;
  for (const v1::ChunkSource& source : epoch.sources()) {
    const auto member = members_.find(keyOf(static_cast<int>(source.ps())));
    if (member == members_.end() || member->second.wanted) continue;
    // No membership here says where it is.
    const std::string_view address = source.address();
    const std::size_t colon = std::min(address.rfind(':'), address.size());
    member->second.place.set_ip(std::string(address.substr(0, colon)));
    if (colon == address.size()) continue;
    const auto port = parseNumber<std::uint32_t>(address.substr(colon + 1));
    member->second.place.set_port(port.value_or(0));
  }
  const bool patient = now - phase_since_ <= config_.leaver_patience;
  return !patient || std::none_of(held_.servers.begin(), held_.servers.end(), [&](int server) {
    return holdsChunks(static_cast<std::uint32_t>(server)) && !members_.contains(keyOf(server));
  });
}

// Before the first epoch of this process: the job goes on where that one has ended.
void Coordinator::adoptBegun() {
  if (!(elastic() || config_.ring)) return;
  const v1::EpochInfo epoch = newestBegun();
  if (epoch.epoch() == 0 || epoch.has_ledger() != tickets_.has_value()) return;
  if (!config_.ring && !adoptMap(epoch)) return;
  history_since_ = epoch.lineage();
  plan_ = planOf(epoch);
  if (tickets_) adoptLedger(epoch);
  lineage_ = epoch_.epoch();
  // Who did not take part in it is new, as it would have been to the former coordinator.
  for (auto& [key, member] : members_) {
    member.newcomer =
        std::none_of(epoch.members().begin(), epoch.members().end(), [&key = key](const auto& m) {
          return key == MemberKey{m.id().role(), m.id().index()};
        });
  }
  for (const v1::StreamPart& part : epoch.past()) {
    epochs_.push_back({part.epoch(), part.first_step(), part.first_position(), part.ranks(),
                       part.step_samples()});
  }
  actions_.push_back(
      LogAction{fmt::format("this coordinator is told of epoch {}, which began at step {}",
                            epoch.epoch(), epoch.first_step())});
}

// Of servers and replicas that hold the epoch's history, and of its workers.
void Coordinator::adoptLedger(const v1::EpochInfo& epoch) {
  PushNews news;
  for (const auto& [key, member] : members_) {
    const v1::ShardState& shard = member.report.shard();
    if (!member.joined || member.report.prepared_epoch() < epoch.lineage()) continue;
    news.tickets.add(NumberSet(shard.pushed_tickets()));
    news.samples.add(NumberSet(shard.pushed_samples()));
  }
  computed_.clear();
  for (const v1::EpochMember& m : epoch.members()) {
    if (m.id().role() != v1::ROLE_WORKER) continue;
    computed_[m.id().index()] = m.incarnation();
    const auto member = members_.find({m.id().role(), m.id().index()});
    if (member == members_.end() || !member->second.joined) continue;
    if (!same(member->second.report.incarnation(), m.incarnation())) continue;
    const v1::WorkerState& state = member->second.report.worker();
    PushNews::Worker& worker = news.workers.emplace_back();
    worker.index = m.id().index();
    worker.began = state.epoch() == epoch.epoch();
    worker.finished = state.finished();
    if (state.pushing()) worker.pushing = state.ticket();
    worker.own = {state.pushing_lease().first(), state.pushing_lease().samples()};
    if (state.has_lease()) worker.lease = {state.lease().first(), state.lease().samples()};
  }
  const std::int64_t samples = epoch.step_samples() / config_.tickets->aggregate;
  tickets_->restore(ledgerOf(epoch), news, std::max<std::int64_t>(1, samples));
}

void Coordinator::tellPast() {
  for (const EpochRecord& record : epochs_) {
    v1::StreamPart* part = epoch_.add_past();
    part->set_epoch(record.epoch);
    part->set_first_step(record.first_step);
    part->set_first_position(record.first_position);
    part->set_ranks(record.ranks);
    part->set_step_samples(record.step_samples);
  }
}

// Clipping: some chunks have taken the first step. With which norm, those know that hold them; the
// others take it with the same.
void Coordinator::followKnownNorm() {
  for (const auto& [key, member] : members_) {
    const v1::ShardState& shard = member.report.shard();
    if (!member.in_epoch || !shard.has_norm()) continue;
    if (shard.norm().step() == epoch_.first_step()) norm_ = shard.norm();
  }
}

// The others are told where each server is, and the worker that may keep replicas: of a life that
// is newer than the membership here that is not known yet.
bool Coordinator::serversPlaced(TimePoint now) const {
  return !elastic() || std::none_of(members_.begin(), members_.end(), [&](const auto& entry) {
    const auto& [key, member] = entry;
    const bool keeper = key == keyOf(kWorkerKeeper) && member.report.ring_port() != 0;
    if (!(key.role == v1::ROLE_PS || keeper) || !awaited(key, member, now)) return false;
    // A membership written by hand has no lives.
    const std::uint32_t known = member.place.created();
    return known > 0 && member.report.incarnation().created() > known;
  });
}

}  // namespace trainyard::runtime
