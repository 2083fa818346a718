#include "runtime/coordinator/job_steps.h"

#include <algorithm>

#include "runtime/coordinator/epoch_plan.h"

namespace trainyard::runtime {

JobSteps::JobSteps(const CoordinatorConfig& config, const Membership& membership,
                   const std::optional<Manifest>& newest)
    : steps_(config.steps),
      passes_(config.passes),
      batch_size_(config.batch_size),
      global_batch_size_(config.global_batch_size),
      backup_workers_(config.backup_workers),
      rules_(config.tickets) {
  count_ = newest ? countFrom(newest->step, newest->position, newest->data_samples, membership)
                  : wanted(membership);
}

std::int64_t JobSteps::wanted(const Membership& membership) const {
  const std::int64_t told = membership.document().steps();
  return told > 0 ? told : steps_;
}

bool JobSteps::endMoves(const Membership& membership, std::int64_t progress) const {
  return passes_ == 0 && std::max(wanted(membership), progress) != count_;
}

int JobSteps::pushSamples(const Membership& membership) const {
  if (global_batch_size_ > 0) return std::max(1, global_batch_size_ / membership.workers());
  return batch_size_;
}

std::int64_t JobSteps::stepSamples(const Membership& membership) const {
  if (rules_) return std::int64_t{pushSamples(membership)} * rules_->aggregate;
  if (global_batch_size_ > 0) return global_batch_size_;
  return std::int64_t{membership.workers()} * batch_size_;
}

std::int64_t JobSteps::endPosition(const Membership& membership) const {
  return passes_ * membership.data().samples();
}

// When `step` begins at `position` of a stream over so many samples.
std::int64_t JobSteps::countFrom(std::int64_t step, std::int64_t position, std::int64_t samples,
                                 const Membership& membership) const {
  if (passes_ == 0) return std::max(wanted(membership), step);
  return stepsToReach(passes_ * samples, step, position, stepSamples(membership));
}

void JobSteps::adopt(const v1::EpochInfo& epoch) {
  plan_ = planOf(epoch);
  for (const v1::StreamPart& part : epoch.past()) {
    records_.push_back({part.epoch(), part.first_step(), part.first_position(), part.ranks(),
                        part.step_samples()});
  }
}

void JobSteps::rollBack(const std::optional<Manifest>& newest) {
  records_ = newest ? newest->epochs : std::vector<EpochRecord>();
}

// Announced with the epoch, so that servers and workers compute the same.
void JobSteps::startEpoch(v1::EpochInfo& epoch, const Membership& membership, bool uneven,
                          const PushTickets* pushes) {
  const std::int64_t first = epoch.first_step();
  const std::int64_t special = epoch.first_step_samples();
  std::erase_if(records_, [&](const EpochRecord& r) { return r.first_step >= first; });
  count_ = countFrom(first + (special > 0), epoch.first_position() + special,
                     membership.data().samples(), membership);
  if (uneven) count_ = std::max(count_, first + 1);  // what some chunks have taken, all take
  epoch.set_step_samples(stepSamples(membership));
  if (global_batch_size_ == 0) epoch.set_rank_samples(batch_size_);
  epoch.set_end_position(endPosition(membership));
  if (pushes != nullptr) count_ = pushes->steps();
  epoch.set_steps(count_);
  epoch.set_backup_workers(std::min(backup_workers_, membership.workers() - 1));
  plan_ = planOf(epoch);
  record(epoch, membership.workers());
  for (const EpochRecord& record : records_) {
    v1::StreamPart* part = epoch.add_past();
    part->set_epoch(record.epoch);
    part->set_first_step(record.first_step);
    part->set_first_position(record.first_position);
    part->set_ranks(record.ranks);
    part->set_step_samples(record.step_samples);
  }
}

// A first step of other samples is an entry of its own.
void JobSteps::record(const v1::EpochInfo& epoch, int workers) {
  const std::int64_t first = epoch.first_step();
  const std::int64_t special = epoch.first_step_samples();
  if (special > 0 && special != epoch.step_samples()) {
    add({epoch.epoch(), first, epoch.first_position(), workers, special});
    if (first + 1 >= count_) return;
    add({epoch.epoch(), first + 1, plan_.positionOf(first + 1), workers, epoch.step_samples()});
    return;
  }
  add({epoch.epoch(), first, epoch.first_position(), workers, epoch.step_samples()});
}

// An epoch that reads on as the one before did is no entry of its own: the list travels with every
// epoch, and grows with the changes of a job rather than with its faults.
void JobSteps::add(const EpochRecord& record) {
  if (!records_.empty()) {
    const EpochRecord& last = records_.back();
    const std::int64_t read = (record.first_step - last.first_step) * last.step_samples;
    // Without common steps positions do not follow from steps.
    const bool follows = rules_ || record.first_position == last.first_position + read;
    if (follows && last.ranks == record.ranks && last.step_samples == record.step_samples) return;
  }
  records_.push_back(record);
}

}  // namespace trainyard::runtime
