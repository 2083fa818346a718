// What the coordinator does while the job computes: progress, evaluation, checkpoints, the way to
// the end.
#include <algorithm>
#include <limits>
#include <utility>

#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/coordinator/coordinator.h"
#include "runtime/coordinator/held_versions.h"
#include "runtime/coordinator/names.h"

namespace trainyard::runtime {

void Coordinator::followProgress(TimePoint now) {
  std::int64_t lowest = std::numeric_limits<std::int64_t>::max();
  HeldVersions held(config_.ring && workers() > 1, epoch_.first_step());
  for (const auto& [key, member] : members_) {
    const v1::MemberReport& report = member.report;
    if (key.role == v1::ROLE_PS) {
      if (!member.in_epoch) continue;
      if (report.prepared_epoch() != epoch_.epoch()) return;
      if (report.shard().max_version() >= 0)
        lowest = std::min(lowest, report.shard().min_version());
      continue;
    }
    // What a worker held before a roll-back is no progress.
    if (report.worker().epoch() != epoch_.epoch()) continue;
    held.add(report.worker().version());
    if (report.worker().has_loss() && report.worker().loss_step() > loss_step_) {
      loss_step_ = report.worker().loss_step();
      loss_ = report.worker().loss();
    }
  }
  std::int64_t newest_known = held.complete();
  if (tickets_) {
    newest_known = tickets_->version();
    lowest = newest_known;
  }
  if (lowest != std::numeric_limits<std::int64_t>::max())
    newest_known = std::max(newest_known, lowest);
  if (newest_known > progress_) progress_ = newest_known;
  rate_.observe(progress_, now);
  if (epoch_ended_ && progress_ > epoch_.first_step())
    epoch_change_times_.observe(toSeconds(now - *std::exchange(epoch_ended_, std::nullopt)));
  if (!changed_at_ || epoch_.revision() < membership_.revision() ||
      progress_ <= epoch_.first_step())
    return;
  actions_.push_back(LogAction{
      fmt::format("epoch {} has taken its first step {:.2f} s after membership revision {} came",
                  epoch_.epoch(), toSeconds(now - *std::exchange(changed_at_, std::nullopt)),
                  epoch_.revision())});
}

// Of a server's sums the newest counts: reports may overtake one another.
void Coordinator::keepNormPart(const MemberKey& key, const v1::MemberReport& report,
                               TimePoint now) {
  if (over() || !report.shard().has_squares()) return;
  // A sum of an earlier epoch is of gradients that may come again, perhaps with other last bits.
  // While sealing, a member may know this epoch's number from an earlier coordinator.
  if (phase_ == v1::PHASE_SEALING || report.prepared_epoch() != epoch_.epoch()) return;
  const v1::SquareSum& told = report.shard().squares();
  NormPart& part = norm_parts_[key];
  if (told.step() <= part.step) return;
  const auto squares =
      SquareSum::fromLimbs({told.limbs().data(), static_cast<std::size_t>(told.limbs_size())});
  if (!squares) {
    return fail(fmt::format("{}: step {}: a sum of squares of {} limbs, expected {}", nameOf(key),
                            told.step(), told.limbs_size(), SquareSum::kLimbs),
                now);
  }
  part.step = told.step();
  part.squares = *squares;
}

// When every server that has variables has summed the same step, its norm is known. The sums are
// exact: servers are added in any order.
void Coordinator::followNorm() {
  if (norm_parts_.empty()) return;
  std::int64_t step = -1;
  SquareSum total;
  for (const auto& [key, member] : members_) {
    if (!owns(key, member)) continue;
    const auto part = norm_parts_.find(key);
    if (part == norm_parts_.end() || (step >= 0 && part->second.step != step)) return;
    step = part->second.step;
    total.add(part->second.squares);
  }
  if (step < 0 || (norm_ && norm_->step() >= step)) return;
  norm_.emplace();
  norm_->set_step(step);
  norm_->set_norm(total.norm());
  ++sequence_;  // of no use to workers
}

void Coordinator::followEvaluation() {
  for (const auto& [key, member] : members_) {
    for (const v1::EvaluationPart& part : member.report.worker().evaluations()) {
      if (part.epoch() < lineage_) continue;
      if (evaluation_.samples() > 0 && part.version() <= evaluation_.version()) continue;
      parts_[part.version()][part.rank()] = part;
    }
  }
  for (auto it = parts_.begin(); it != parts_.end();) {
    if (static_cast<int>(it->second.size()) < scorers(it->first)) {
      ++it;
      continue;
    }
    v1::Evaluation sum;
    sum.set_version(it->first);
    for (const auto& [rank, part] : it->second) {
      sum.set_hits(sum.hits() + part.hits());
      sum.set_samples(sum.samples() + part.samples());
      sum.set_loss_sum(sum.loss_sum() + part.loss_sum());
    }
    // An older version that is still incomplete stays so: nobody looks at it any more.
    it = parts_.erase(parts_.begin(), std::next(it));
    evaluation_ = sum;
    actions_.push_back(EvaluationAction{sum});
    changed();
  }
}

void Coordinator::followCheckpoint(TimePoint now) {
  if (committing_ >= 0) return;
  const std::int64_t first = epoch_.first_step();
  if ((!newest_ || newest_->step < first) && unwritable_ != first) tryCommit(first, now);
  if (!newest_ || newest_->step < steps_) tryCommit(steps_, now);
  if (phase_ == v1::PHASE_STOPPING) return;  // followStop names the version
  if (checkpoint_) {
    for (const auto& [key, member] : members_) {
      if (!writes(key) || member.report.shard().missed_checkpoint() < checkpoint_->version)
        continue;
      // Asked too late: the servers were already beyond it.
      checkpoint_lead_ = std::min<Duration>(checkpoint_lead_ * 2, std::chrono::seconds(10));
      checkpoint_.reset();
      next_checkpoint_ = now;
      break;
    }
  }
  if (checkpoint_) {
    tryCommit(checkpoint_->version, now);
    return;
  }
  // Without a rate the version asked for would be one that the servers have long passed.
  // And not while workers rest to change, which it would put off.
  if (now < next_checkpoint_ || rate_.stepsPerSecond() <= 0 || hold_ > 0) return;
  const std::int64_t lead = std::max<std::int64_t>(
      2, static_cast<std::int64_t>(rate_.stepsPerSecond() * toSeconds(checkpoint_lead_)));
  const std::int64_t version = std::max(progress_, rate_.expectedAt(now)) + lead;
  next_checkpoint_ = now + config_.checkpoint_every;
  if (version >= steps_) return;  // the last one is taken unasked
  checkpoint_ = PendingCheckpoint{version, now, false};
  changed();
}

// Commits `version` when every server (AllReduce: rank 0) has written its part under this epoch.
void Coordinator::tryCommit(std::int64_t version, TimePoint now) {
  if (committing_ >= 0) return;
  Manifest manifest;
  for (const auto& [key, member] : members_) {
    if (!writes(key)) continue;
    const v1::ShardFile* found = nullptr;
    for (const v1::ShardFile& file : member.report.written()) {
      if (file.epoch() == epoch_.epoch() && file.version() == version) found = &file;
    }
    if (found == nullptr) return;
    if (!found->error().empty()) {
      const std::string name = nameOf(key);
      return checkpointFailed(version, fmt::format("{}: {}", name, found->error()), now);
    }
    manifest.files.push_back({found->name(), found->size(), found->sha256()});
  }
  manifest.job_uid = config_.job_uid;
  manifest.step = version;
  manifest.epoch = epoch_.epoch();
  if (const auto mark = marks_.find(version); mark != marks_.end()) {
    manifest.position = mark->second.position;
    manifest.unread = mark->second.unread;
  } else if (tickets_) {
    manifest.position = tickets_->position();
    manifest.unread = tickets_->unread();
  } else {
    manifest.position = plan_.positionOf(version);
  }
  manifest.epochs = epochs_;
  committing_ = version;
  committing_since_ = now;
  actions_.push_back(CommitAction{std::move(manifest)});
}

// The former one stays; only the last one of a run must succeed.
void Coordinator::checkpointFailed(std::int64_t version, const std::string& why, TimePoint now) {
  unwritable_ = version;
  if (checkpoint_ && checkpoint_->version == version) checkpoint_.reset();
  if (version == steps_ || phase_ == v1::PHASE_STOPPING) {
    return fail(fmt::format("the last checkpoint (step {}) could not be written: {}", version, why),
                now);
  }
  if (std::exchange(checkpoint_failed_, true)) return;
  actions_.push_back(LogAction{
      fmt::format("checkpoint at step {} failed, training goes on: {}", version, why), true});
}

void Coordinator::onCommitted(const Manifest& manifest, const Status& status, TimePoint now) {
  const std::int64_t version = committing_;
  committing_ = -1;
  if (status.ok()) {
    // The last one of a run is not asked for: its time begins with the last server's file.
    const bool asked = checkpoint_ && checkpoint_->version == version;
    checkpoint_times_.observe(toSeconds(now - (asked ? checkpoint_->since : committing_since_)));
    if (asked) checkpoint_.reset();
    newest_ = manifest;
    marks_.erase(marks_.begin(), marks_.lower_bound(version));
    checkpoint_unix_ms_ = manifest.unix_ms;
    checkpoint_failed_ = false;
    actions_.push_back(LogAction{fmt::format("checkpoint {} committed", manifest.fileName())});
    changed();
  } else {
    checkpointFailed(version, std::string(fromAbsl(status.message())), now);
  }
  evaluate(now);
}

void Coordinator::followStop(TimePoint now) {
  if (phase_ == v1::PHASE_ACTIVE) {
    checkpoint_.reset();
    stopTickets();
    enter(v1::PHASE_STOPPING, now);
    hold_ = sequence_;
  }
  if (phase_ == v1::PHASE_STOPPING) {
    // One worker rests at v and all hold v: no step can pass v any more, nothing before it is
    // missing.
    const std::optional<std::int64_t> resting = restingVersion(hold_);
    if (stop_at_ < 0 && resting) {
      stop_at_ = *resting;
      progress_ = *resting;
      changed();
    }
    if (stop_at_ >= 0) {
      if (newest_ && newest_->step == stop_at_) return enter(v1::PHASE_STOPPED, now);
      tryCommit(stop_at_, now);
    }
  }
  const bool nothing_new = progress_ == (newest_ ? newest_->step : 0);
  if (nothing_new && (phase_ == v1::PHASE_SEALING || phase_ == v1::PHASE_PREPARING)) {
    return enter(v1::PHASE_STOPPED, now);
  }
  if (now < stop_by_ || over()) return;
  if (progress_ > (newest_ ? newest_->step : 0))
    lost_steps_ += progress_ - (newest_ ? newest_->step : 0);
  actions_.push_back(LogAction{
      fmt::format("stopped without a new checkpoint: {} did not get ready in {:.0f} s",
                  waiting_.empty() ? "the servers" : waiting_, toSeconds(stop_by_ - stop_since_)),
      true});
  enter(v1::PHASE_STOPPED, now);
}

// A job without evaluation data ends without a score.
bool Coordinator::evaluates() const {
  return std::any_of(members_.begin(), members_.end(), [](const auto& m) {
    return m.first.role == v1::ROLE_WORKER && m.second.report.data().eval_samples() > 0;
  });
}

void Coordinator::tryDone(TimePoint now) {
  if (over() || progress_ < steps_) return;
  if (!newest_ || newest_->step != steps_) return;
  if (evaluates() && (evaluation_.samples() == 0 || evaluation_.version() != steps_)) return;
  if (std::exchange(finishing_, true)) return;
  actions_.push_back(FinishAction{steps_, evaluation_});
}

void Coordinator::onFinishRecorded(const Status& status, TimePoint now) {
  if (!status.ok()) {
    actions_.push_back(
        LogAction{fmt::format("the end is not recorded: {}", fromAbsl(status.message())), true});
  }
  if (!over()) enter(v1::PHASE_DONE, now);
  evaluate(now);
}

void Coordinator::fail(const std::string& why, TimePoint now) {
  if (over()) return;
  failure_ = why;
  checkpoint_.reset();
  actions_.push_back(LogAction{fmt::format("the job fails: {}", why), true});
  enter(v1::PHASE_FAILED, now);
}

}  // namespace trainyard::runtime
