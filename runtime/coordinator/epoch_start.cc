// From where an epoch starts, and with whom.
#include "runtime/coordinator/epochs.h"

namespace trainyard::runtime {

// Within a step servers neither come nor go, so that what is held stays readable where it is. Nor
// does a worker join: the step may have no samples for him, and then the version before it, which
// he lacks, is held only until another rank begins the next step.
bool Epochs::takesPart(const MemberKey& key, const Member& member, const Membership& membership,
                       bool within_step, bool lost) const {
  if (key.role == v1::ROLE_PS && !member.wanted)
    return within_step || (!lost && chunks_.elastic() && chunks_.staysFor(key.index, membership));
  return !(member.newcomer && within_step);
}

Held Epochs::enlist(const Membership& membership, TimePoint now, v1::EpochInfo& epoch) {
  epoch.set_epoch(number());
  epoch.set_revision(membership.document().revision());
  const std::set<MemberKey> here = awaited(membership, now);
  const Held held = chunks_.findHeld(membership, here);
  // Some servers have taken a step, and others have not.
  const bool within_step = !async_ && !held.lost && held.highest > held.lowest;
  std::uint32_t rank = 0;
  for (const MemberKey& key : here) {
    const Member& member = *membership.find(key);
    if (!takesPart(key, member, membership, within_step, held.lost)) continue;
    v1::EpochMember* m = epoch.add_members();
    m->mutable_id()->set_role(key.role);
    m->mutable_id()->set_index(key.index);
    *m->mutable_incarnation() = member.report.incarnation();
    if (key.role == v1::ROLE_WORKER) m->set_rank(rank++);
  }
  return ring_ ? enlistWorkers(membership, epoch) : held;
}

// AllReduce: the first rank that holds the newest version gives it to the others. What is held
// since before the weights' history began again (a roll-back) is of no use.
Held Epochs::enlistWorkers(const Membership& membership, v1::EpochInfo& epoch) const {
  Held held;
  held.lost = true;
  for (v1::EpochMember& m : *epoch.mutable_members()) {
    const MemberKey key = keyOf(m.id());
    const Member& member = *membership.find(key);
    m.set_ring_host(membership.placeOf(key, member)->ip());
    m.set_ring_port(member.report.ring_port());
    const v1::ShardState& shard = member.report.shard();
    if (shard.empty() || member.report.worker().epoch() < history_since_) continue;
    if (shard.max_version() <= held.highest) continue;
    held = {false, shard.max_version(), shard.max_version()};
    epoch.set_source_rank(static_cast<std::int32_t>(m.rank()));
  }
  return held;
}

bool Epochs::start(const Held& held, const Membership& membership, const JobSteps& steps,
                   const std::optional<Manifest>& newest, v1::EpochInfo& epoch, Outbox& out) {
  // Without a common step servers differ by the pushes under way.
  const bool level = async_ || held.highest - held.lowest <= 1;
  const bool kept = !held.lost && held.highest >= 0 && level && steps.begun();
  uneven_ = kept && !async_ && held.highest > held.lowest;
  if (!kept) {
    history_since_ = epoch.epoch();
    history_from_ = newest ? newest->fileName() : "";
  }
  epoch.set_lineage(history_since_);
  epoch.set_lineage_from(history_from_);
  chunks_.place(kept, uneven_, membership, epoch, out);
  if (kept && !async_) {
    epoch.set_first_step(held.lowest);
    epoch.set_first_position(steps.plan().positionOf(held.lowest));
    // What is in the chunks that have taken this step came from the former ranks' samples.
    if (uneven_ && backup_workers_ == 0)
      epoch.set_first_step_samples(steps.plan().samplesOf(held.lowest));
  } else if (!kept && newest) {
    epoch.set_first_step(newest->step);
    epoch.set_first_position(newest->position);
    epoch.set_restore_manifest(newest->fileName());
  } else if (!kept) {
    epoch.set_fresh(true);
    epoch.set_init_manifest(init_manifest_);
  }
  return kept;
}

void Epochs::prepare(const v1::EpochInfo& epoch, TimePoint now, Outbox& out) {
  info_ = epoch;
  enter(v1::PHASE_PREPARING, now, out);
}

}  // namespace trainyard::runtime
