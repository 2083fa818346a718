// From where an epoch starts, and what its steps read.
#include <algorithm>
#include <limits>

#include "fmt/format.h"
#include "runtime/coordinator/coordinator.h"
#include "runtime/coordinator/epoch_plan.h"
#include "runtime/coordinator/held_versions.h"

namespace trainyard::runtime {

// The newest version that was complete.
std::int64_t Coordinator::heldVersion() const {
  HeldVersions held(config_.ring && members_.size() > 1, progress_);
  for (const auto& [key, member] : members_) {
    if (key.role == v1::ROLE_WORKER) held.add(member.report.worker().version());
  }
  return held.complete();
}

// Who takes part in the epoch, and what its servers hold. While some servers have taken a step and
// others have not, no worker joins: the step may have no samples for him, and then the version
// before it, which he lacks, is held only until another rank begins the next step.
Coordinator::Held Coordinator::enlist(TimePoint now) {
  const Held held = heldByServers(now);
  const bool within_step = !tickets_ && !held.lost && held.highest > held.lowest;
  for (auto& [key, member] : members_) {
    member.in_epoch = takesPart(key, member, within_step, now);
    if (!member.in_epoch) continue;
    if (key.role == v1::ROLE_WORKER) member.newcomer = false;
    v1::EpochMember* m = epoch_.add_members();
    m->mutable_id()->set_role(key.role);
    m->mutable_id()->set_index(key.index);
    *m->mutable_incarnation() = member.report.incarnation();
  }
  std::uint32_t rank = 0;
  for (v1::EpochMember& m : *epoch_.mutable_members()) {
    if (m.id().role() == v1::ROLE_WORKER) m.set_rank(rank++);
  }
  if (config_.ring) return enlistRing();
  return held;
}

void Coordinator::startFrom(TimePoint now) {
  if (epochs_.empty()) {
    adoptBegun();
    // When the former coordinator ended is not known.
    if (!epochs_.empty()) epoch_ended_ = phase_since_;
  }
  const auto [lost, lowest, highest] = enlist(now);
  epoch_.set_revision(membership_.revision());
  std::int64_t held = heldVersion();
  // Without a common step servers differ by the pushes under way.
  const bool level = tickets_ || highest - lowest <= 1;
  const bool kept = !lost && highest >= 0 && level && !epochs_.empty();
  uneven_ = kept && !tickets_ && highest > lowest;
  if (!kept) history_since_ = epoch_.epoch();
  placeChunks(kept);
  epoch_.set_lineage(history_since_);
  if (!kept || epochs_.back().ranks != workers()) {
    lineage_ = epoch_.epoch();
    parts_.clear();
  }
  if (kept && !tickets_) {
    epoch_.set_first_step(lowest);
    epoch_.set_first_position(plan_.positionOf(lowest));
    // What is in the chunks that have taken this step came from the former ranks' samples.
    if (uneven_ && config_.backup_workers == 0)
      epoch_.set_first_step_samples(plan_.samplesOf(lowest));
  } else if (kept) {
    // startTickets() says where it goes on
  } else if (newest_) {
    epoch_.set_first_step(newest_->step);
    epoch_.set_first_position(newest_->position);
    epoch_.set_restore_manifest(newest_->fileName());
    epochs_ = newest_->epochs;
  } else {
    epoch_.set_fresh(true);
    epoch_.set_init_manifest(config_.init_manifest);
    epochs_.clear();
  }
  if (tickets_) {
    startTickets(kept);
    if (kept) held = epoch_.first_step();
  }
  const std::int64_t first = epoch_.first_step();
  if (held > first) lost_steps_ += held - first;
  if (!epoch_.restore_manifest().empty() && resumed_from_ < 0) resumed_from_ = first;
  // A score of steps that are to be taken again is of weights that may never come back.
  if (!kept && evaluation_.version() > first) evaluation_.Clear();
  std::erase_if(epochs_, [&](const EpochRecord& r) { return r.first_step >= first; });
  const std::int64_t former_end = steps_;
  planSteps();
  if (steps_ != former_end) {  // who scores a version depends on whether it is the last
    lineage_ = epoch_.epoch();
    parts_.clear();
  }
  recordEpoch();
  tellPast();
  if (uneven_) followKnownNorm();
  progress_ = first;
  actions_.push_back(LogAction{fmt::format(
      "epoch {} starts at step {} with {} workers, {}{}", epoch_.epoch(), first, workers(),
      !epoch_.init_manifest().empty() ? "with the weights of " + epoch_.init_manifest()
      : epoch_.fresh()                ? "from the seed"
      : epoch_.restore_manifest().empty()
          ? fmt::format("from what {} hold", config_.ring ? "the workers" : "the servers")
          : "from checkpoint " + epoch_.restore_manifest(),
      held > first ? fmt::format(", {} steps lost", held - first) : "")});
  enter(v1::PHASE_PREPARING, now);
}

// A first step of other samples is an entry of its own.
void Coordinator::recordEpoch() {
  const std::int64_t first = epoch_.first_step();
  const std::int64_t special = epoch_.first_step_samples();
  if (special > 0 && special != epoch_.step_samples()) {
    addRecord({epoch_.epoch(), first, epoch_.first_position(), workers(), special});
    if (first + 1 >= steps_) return;
    addRecord(
        {epoch_.epoch(), first + 1, plan_.positionOf(first + 1), workers(), epoch_.step_samples()});
    return;
  }
  addRecord({epoch_.epoch(), first, epoch_.first_position(), workers(), epoch_.step_samples()});
}

// An epoch that reads on as the one before did is no entry of its own: the list travels with every
// epoch, and grows with the changes of a job rather than with its faults.
void Coordinator::addRecord(const EpochRecord& record) {
  if (!epochs_.empty()) {
    const EpochRecord& last = epochs_.back();
    const std::int64_t read = (record.first_step - last.first_step) * last.step_samples;
    // Without common steps positions do not follow from steps.
    const bool follows = tickets_ || record.first_position == last.first_position + read;
    if (follows && last.ranks == record.ranks && last.step_samples == record.step_samples) return;
  }
  epochs_.push_back(record);
}

// The job's number of steps when `step` begins at `position` of a stream over so many samples.
std::int64_t Coordinator::stepsFrom(std::int64_t step, std::int64_t position,
                                    std::int64_t samples) const {
  if (config_.passes == 0) return std::max(wantedSteps(), step);
  return stepsToReach(config_.passes * samples, step, position, stepSamples());
}

// What the epoch's steps read; announced with it, so that servers and workers compute the same.
void Coordinator::planSteps() {
  const std::int64_t samples = data().samples();
  const std::int64_t special = epoch_.first_step_samples();
  const std::int64_t first = epoch_.first_step();
  steps_ = stepsFrom(first + (special > 0), epoch_.first_position() + special, samples);
  if (uneven_) steps_ = std::max(steps_, first + 1);  // what some chunks have taken, all take
  epoch_.set_step_samples(stepSamples());
  if (config_.global_batch_size == 0) epoch_.set_rank_samples(config_.batch_size);
  epoch_.set_end_position(config_.passes * samples);
  if (tickets_) steps_ = tickets_->steps();
  epoch_.set_steps(steps_);
  epoch_.set_backup_workers(std::min(config_.backup_workers, workers() - 1));
  plan_ = planOf(epoch_);
}

}  // namespace trainyard::runtime
