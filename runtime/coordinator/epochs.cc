#include "runtime/coordinator/epochs.h"

#include <algorithm>
#include <vector>

#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/coordinator/incarnation.h"

namespace trainyard::runtime {

Epochs::Epochs(const CoordinatorConfig& config, std::int64_t used, TimePoint now)
    : self_(config.self),
      ring_(config.ring),
      async_(config.tickets.has_value()),
      backup_workers_(config.backup_workers),
      init_manifest_(config.init_manifest),
      dead_after_(config.dead_after),
      leaver_patience_(config.leaver_patience),
      phase_since_(now),
      chunks_(config),
      highest_(used) {
  info_.set_epoch(highest_ + 1);
}

bool Epochs::over() const {
  return phase_ == v1::PHASE_DONE || phase_ == v1::PHASE_STOPPED || phase_ == v1::PHASE_FAILED;
}

bool Epochs::computing() const {
  return phase_ == v1::PHASE_ACTIVE || phase_ == v1::PHASE_STOPPING;
}

void Epochs::enter(v1::Phase phase, TimePoint now, Outbox& out) {
  phase_ = phase;
  phase_since_ = now;
  out.changed();
}

bool Epochs::awaited(const MemberKey& key, const Member& member, const Membership& membership,
                     TimePoint now) const {
  if (member.in_epoch || member.source) return true;
  const bool sealing = phase_ == v1::PHASE_SEALING;
  if (key.role == v1::ROLE_PS && !member.wanted) {
    return sealing && chunks_.holds(key.index) && !member.report.shard().empty() &&
           now - member.last_seen <= leaver_patience_;
  }
  if (!member.newcomer) return true;
  return sealing && membership.canJoin(key, member, now);
}

std::set<MemberKey> Epochs::awaited(const Membership& membership, TimePoint now) const {
  std::set<MemberKey> keys;
  for (const auto& [key, member] : membership.members()) {
    if (awaited(key, member, membership, now)) keys.insert(key);
  }
  return keys;
}

bool Epochs::needs(const MemberKey& key, const Member& member) const {
  if (over()) return false;
  if (member.in_epoch && (key.role == v1::ROLE_WORKER || chunks_.elastic())) return true;
  return key.role == v1::ROLE_PS && chunks_.holds(key.index);
}

bool Epochs::holds(const MemberKey& key) const {
  return key.role == (ring_ ? v1::ROLE_WORKER : v1::ROLE_PS) || chunks_.keeps(key, info_);
}

// Every server of the epoch; with AllReduce rank 0.
std::set<MemberKey> Epochs::writers(const Membership& membership) const {
  std::set<MemberKey> keys;
  for (const auto& [key, member] : membership.members()) {
    if (!ring_ && key.role == v1::ROLE_PS && member.in_epoch) keys.insert(key);
  }
  for (const v1::EpochMember& m : info_.members()) {
    if (!ring_ || m.rank() != 0) continue;
    if (membership.find(keyOf(m.id())) != nullptr) keys.insert(keyOf(m.id()));
    break;
  }
  return keys;
}

std::string Epochs::waitingFor(const Membership& membership, TimePoint now) const {
  std::vector<std::string> names;
  for (const auto& [key, member] : membership.members()) {
    if (!awaited(key, member, membership, now)) continue;
    bool waits = !membership.present(member, now);
    if (phase_ == v1::PHASE_SEALING) waits = waits || member.report.sealed_epoch() < number();
    if (phase_ == v1::PHASE_PREPARING && holds(key) && member.in_epoch)
      waits = waits || member.report.prepared_epoch() < number();
    if (waits) names.push_back(membership.nameOf(key));
  }
  return join(names, ", ");
}

std::optional<std::string> Epochs::broken(const Membership& membership, TimePoint now) const {
  if (phase_ == v1::PHASE_SEALING) return std::nullopt;
  for (const auto& [key, member] : membership.members()) {
    if (membership.present(member, now) || !awaited(key, member, membership, now)) continue;
    const std::string name = membership.nameOf(key);
    if (!member.joined) return fmt::format("{} is to join", name);
    return fmt::format("{} has not been heard of for {:.0f} s", name, toSeconds(dead_after_));
  }
  const bool all_belong = std::all_of(
      info_.members().begin(), info_.members().end(),
      [&](const v1::EpochMember& m) { return membership.find(keyOf(m.id())) != nullptr; });
  if (!all_belong) return "a task has left";
  return std::nullopt;
}

void Epochs::heard(std::int64_t number) {
  highest_ = std::max(highest_, number);
}

void Epochs::end(const std::string& why, bool planned, TimePoint now, Outbox& out) {
  highest_ = std::max(highest_, number()) + 1;
  out.log(fmt::format("epoch {} ends: {}", number(), why), !planned);
  info_.Clear();
  info_.set_epoch(highest_);
  enter(v1::PHASE_SEALING, now, out);
}

bool Epochs::renumber(const Membership& membership, Outbox& out) {
  for (const auto& [key, member] : membership.members()) {
    if (!member.joined || same(member.report.seen_coordinator(), self_)) continue;
    if (member.report.highest_epoch() < number()) continue;
    info_.set_epoch(highest_ + 1);
    out.changed();
    return true;
  }
  return false;
}

bool Epochs::sealed(const Membership& membership, TimePoint now) const {
  const std::set<MemberKey> keys = awaited(membership, now);
  for (const MemberKey& key : keys) {
    const Member& member = *membership.find(key);
    if (!membership.present(member, now) || member.report.sealed_epoch() != number()) return false;
    if (!same(member.report.seen_coordinator(), self_)) return false;
  }
  if (!ring_) return chunks_.allPlaced(membership, keys);
  return std::all_of(keys.begin(), keys.end(), [&](const MemberKey& key) {
    return membership.placeKnown(key, *membership.find(key));
  });
}

Epochs::Prepared Epochs::prepared(const Membership& membership) const {
  for (const auto& [key, member] : membership.members()) {
    if (!holds(key) || !member.in_epoch) continue;
    const std::string& problem = member.report.shard().problem();
    if (!problem.empty()) return {false, fmt::format("{}: {}", membership.nameOf(key), problem)};
    if (member.report.prepared_epoch() != number()) return {};
  }
  return {true, ""};
}

void Epochs::begin(TimePoint now, Outbox& out) {
  chunks_.begin(info_);
  enter(v1::PHASE_ACTIVE, now, out);
  begun_view_ = out.sequence();
}

// Who could tell a coordinator in this one's place. Until then that one would go on from the epoch
// before.
bool Epochs::seenBegun(const Membership& membership) const {
  const auto& members = membership.members();
  return std::any_of(members.begin(), members.end(), [&](const auto& m) {
    const v1::MemberReport& report = m.second.report;
    return m.first != keyOfServer(0) && same(report.seen_coordinator(), self_) &&
           report.seen_view() >= begun_view_;
  });
}

void Epochs::tell(v1::View& view) const {
  view.set_phase(phase_);
  *view.mutable_epoch() = info_;
}

void Epochs::tell(const Membership& membership, v1::JobProgress& progress) const {
  progress.set_epoch(number());
  const int former = seenBegun(membership) ? 0 : chunks_.formerUnguarded();
  progress.set_unguarded_parts(std::max(chunks_.unguarded(), former));
  if (phase_ == v1::PHASE_DONE) progress.set_outcome("succeeded");
  if (phase_ == v1::PHASE_STOPPED) progress.set_outcome("stopped");
  if (phase_ == v1::PHASE_FAILED) progress.set_outcome("failed");
}

}  // namespace trainyard::runtime
