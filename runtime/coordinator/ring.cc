// Strategy AllReduce: the workers put their gradients together among themselves, and each holds all
// of the state. An epoch needs every one of them; when one fails, all meet again under the next,
// which goes on from the newest version that any of them holds.
#include <algorithm>

#include "fmt/format.h"
#include "runtime/coordinator/coordinator.h"
#include "runtime/coordinator/names.h"

namespace trainyard::runtime {
namespace {

// Groups in a row that came to nothing, before the job fails.
constexpr int kMaxRingFailures = 20;

}  // namespace

// Whether an epoch starts from what it holds.
bool Coordinator::holds(const MemberKey& key) const {
  return key.role == (config_.ring ? v1::ROLE_WORKER : v1::ROLE_PS) || keeps(key);
}

// Whether a part of each checkpoint is its own.
bool Coordinator::writes(const MemberKey& key) const {
  if (!config_.ring) return key.role == v1::ROLE_PS && members_.at(key).in_epoch;
  for (const v1::EpochMember& m : epoch_.members()) {
    if (m.rank() == 0) return key == MemberKey{m.id().role(), m.id().index()};
  }
  return false;
}

// Where its machine is; null while that is not known of the life that has reported.
const v1::MemberTask* Coordinator::placeOf(const MemberKey& key, const Member& member) const {
  for (const v1::MemberTask& task : membership_.tasks()) {
    const bool same = task.id().role() == key.role && task.id().index() == key.index &&
                      task.created() == member.report.incarnation().created();
    if (same && !task.ip().empty()) return &task;
  }
  return nullptr;
}

bool Coordinator::placeKnown(const MemberKey& key, const Member& member) const {
  return member.report.ring_port() != 0 && placeOf(key, member) != nullptr;
}

bool Coordinator::placesKnown(TimePoint now) const {
  return std::all_of(members_.begin(), members_.end(), [&](const auto& m) {
    return !awaited(m.first, m.second, now) || placeKnown(m.first, m.second);
  });
}

// The first rank that holds the newest version gives it to the others. What is held since before
// the weights' history began again (a roll-back) is of no use.
Coordinator::Held Coordinator::enlistRing() {
  Held held;
  held.lost = true;
  for (v1::EpochMember& m : *epoch_.mutable_members()) {
    const MemberKey key{m.id().role(), m.id().index()};
    const Member& member = members_.at(key);
    m.set_ring_host(placeOf(key, member)->ip());
    m.set_ring_port(member.report.ring_port());
    const v1::ShardState& shard = member.report.shard();
    if (shard.empty() || member.report.worker().epoch() < history_since_) continue;
    if (shard.max_version() <= held.highest) continue;
    held = {false, shard.max_version(), shard.max_version()};
    epoch_.set_source_rank(static_cast<std::int32_t>(m.rank()));
  }
  return held;
}

// A rank that cannot go on ends the epoch for all.
void Coordinator::followRing(const MemberKey& key, const v1::MemberReport& report, TimePoint now) {
  if (!config_.ring || over() || phase_ == v1::PHASE_SEALING) return;
  if (!report.has_ring_failure() || report.ring_failure().epoch() != epoch_.epoch()) return;
  const std::string why = fmt::format("{}: {}", nameOf(key), report.ring_failure().message());
  ring_failures_ = progress_ > ring_failed_at_ ? 1 : ring_failures_ + 1;
  ring_failed_at_ = progress_;
  if (ring_failures_ < kMaxRingFailures) return beginEpoch(why, now);
  fail(
      fmt::format("the workers failed to work together {} times in a row: {}", ring_failures_, why),
      now);
}

}  // namespace trainyard::runtime
