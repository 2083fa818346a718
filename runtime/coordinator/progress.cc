#include "runtime/coordinator/progress.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/metrics/bucket_message.h"
#include "fmt/format.h"
#include "runtime/coordinator/held_versions.h"

namespace trainyard::runtime {

Progress::Progress(const CoordinatorConfig& config, std::int64_t version)
    : ring_(config.ring), version_(version) {}

void Progress::follow(const Membership& membership, const v1::EpochInfo& epoch,
                      const PushTickets* pushes, TimePoint now, Outbox& out) {
  std::int64_t lowest = std::numeric_limits<std::int64_t>::max();
  HeldVersions held(ring_ && membership.workers() > 1, epoch.first_step());
  for (const auto& [key, member] : membership.members()) {
    const v1::MemberReport& report = member.report;
    if (key.role == v1::ROLE_PS) {
      if (!member.in_epoch) continue;
      if (report.prepared_epoch() != epoch.epoch()) return;
      if (report.shard().max_version() >= 0)
        lowest = std::min(lowest, report.shard().min_version());
      continue;
    }
    // What a worker held before a roll-back is no progress.
    if (report.worker().epoch() != epoch.epoch()) continue;
    held.add(report.worker().version());
    if (report.worker().has_loss() && report.worker().loss_step() > loss_step_) {
      loss_step_ = report.worker().loss_step();
      loss_ = report.worker().loss();
    }
  }
  std::int64_t newest_known = held.complete();
  if (pushes != nullptr) {
    newest_known = pushes->version();
    lowest = newest_known;
  }
  if (lowest != std::numeric_limits<std::int64_t>::max())
    newest_known = std::max(newest_known, lowest);
  version_ = std::max(version_, newest_known);
  rate_.observe(version_, now);
  if (version_ <= epoch.first_step()) return;
  if (epoch_ended_)
    epoch_change_times_.observe(toSeconds(now - *std::exchange(epoch_ended_, std::nullopt)));
  if (!changed_at_ || epoch.revision() < membership.document().revision()) return;
  out.log(fmt::format(
      "epoch {} has taken its first step {:.2f} s after membership revision {} came", epoch.epoch(),
      toSeconds(now - *std::exchange(changed_at_, std::nullopt)), epoch.revision()));
}

void Progress::endEpoch(bool ran, TimePoint now) {
  if (ran && !epoch_ended_) epoch_ended_ = now;
  rate_.reset();
}

std::int64_t Progress::heldVersion(const Membership& membership) const {
  HeldVersions held(ring_ && membership.members().size() > 1, version_);
  for (const auto& [key, member] : membership.members()) {
    if (key.role == v1::ROLE_WORKER) held.add(member.report.worker().version());
  }
  return held.complete();
}

void Progress::startEpoch(std::int64_t first, std::int64_t held, bool restored) {
  if (held > first) lost_steps_ += held - first;
  if (restored && resumed_from_ < 0) resumed_from_ = first;
  version_ = first;
}

void Progress::giveUpAfter(std::int64_t version) {
  if (version_ > version) lost_steps_ += version_ - version;
  version_ = std::min(version_, version);  // whoever goes on from there must not count them again
}

void Progress::tell(v1::View& view) const {
  view.set_lost_steps(lost_steps_);
  view.set_progress(version_);
}

void Progress::tell(v1::JobProgress& progress, std::int64_t step_samples) const {
  progress.set_step(version_);
  progress.set_examples_per_second(rate_.stepsPerSecond() * static_cast<double>(step_samples));
  progress.set_has_loss(loss_step_ >= 0);
  progress.set_loss(loss_);
  progress.set_lost_steps(lost_steps_);
  progress.set_resumed_from_step(resumed_from_);
}

void Progress::measure(v1::Measurements& measured) const {
  setBuckets(*measured.mutable_epoch_change_times(), epoch_change_times_);
}

}  // namespace trainyard::runtime
