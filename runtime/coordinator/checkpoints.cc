#include "runtime/coordinator/checkpoints.h"

#include <algorithm>
#include <utility>

#include "base/core/strings.h"
#include "base/metrics/bucket_message.h"
#include "fmt/format.h"

namespace trainyard::runtime {
namespace {

// One that has begun is let end so long.
constexpr Duration kCheckpointPatience = std::chrono::seconds(5);

std::int64_t bytesOf(const Manifest& manifest) {
  std::int64_t sum = 0;
  for (const auto& file : manifest.files) sum += static_cast<std::int64_t>(file.size);
  return sum;
}

}  // namespace

Checkpoints::Checkpoints(const CoordinatorConfig& config, std::optional<Manifest> newest,
                         TimePoint now)
    : job_uid_(config.job_uid),
      every_(config.checkpoint_every),
      full_every_(config.full_every),
      newest_(std::move(newest)),
      next_(now + every_) {
  if (newest_) newest_unix_ms_ = newest_->unix_ms;
}

bool Checkpoints::busy(TimePoint now) const {
  return committing() || (pending_ && now - pending_->since < kCheckpointPatience);
}

// Asked too late: a server was already beyond it.
bool Checkpoints::missed(const Membership& membership, const Epochs& epochs) const {
  const std::set<MemberKey> writers = epochs.writers(membership);
  return std::any_of(writers.begin(), writers.end(), [&](const MemberKey& key) {
    return membership.find(key)->report.shard().missed_checkpoint() >= pending_->version;
  });
}

Checkpoints::Failure Checkpoints::followSteps(const Membership& membership, const Epochs& epochs,
                                              const JobSteps& steps, const Progress& progress,
                                              bool resting, TimePoint now, Outbox& out) {
  if (committing()) return std::nullopt;
  const auto commit = [&](std::int64_t version) {
    return tryCommit(version, membership, epochs, steps, nullptr, now, out);
  };
  const std::int64_t first = epochs.info().first_step();
  Failure failure;
  if (newestStep() < first && unwritable_ != first) failure = commit(first);
  if (newestStep() < steps.count()) {
    Failure of_last = commit(steps.count());
    if (!failure) failure = std::move(of_last);
  }
  // A stop names its version itself.
  if (failure || epochs.phase() == v1::PHASE_STOPPING) return failure;
  if (pending_ && missed(membership, epochs)) {
    lead_ = std::min<Duration>(lead_ * 2, std::chrono::seconds(10));
    pending_.reset();
    next_ = now;
  }
  if (pending_) return commit(pending_->version);
  // Two at a time would need the memory of two.
  const bool first_to_come = epochs.info().fresh() && newestStep() < first && unwritable_ != first;
  if (now >= next_ && !resting && !first_to_come) ask(steps, progress, now, out);
  return std::nullopt;
}

// For a version a little ahead.
void Checkpoints::ask(const JobSteps& steps, const Progress& progress, TimePoint now, Outbox& out) {
  // Without a rate the version asked for would be one that the servers have long passed.
  const double rate = progress.rate().stepsPerSecond();
  if (rate <= 0) return;
  const std::int64_t lead =
      std::max<std::int64_t>(2, static_cast<std::int64_t>(rate * toSeconds(lead_)));
  const std::int64_t version = std::max(progress.version(), progress.rate().expectedAt(now)) + lead;
  next_ = now + every_;
  if (version >= steps.count()) return;  // the last one is taken unasked
  pending_ = Pending{version, now, mayBeDelta(now) ? newest_->fileName() : ""};
  out.changed();
}

// A coordinator that has started again does not know how old the newest whole one is.
bool Checkpoints::mayBeDelta(TimePoint now) const {
  return full_every_ && newest_ && whole_since_ && now - *whole_since_ < *full_every_;
}

bool Checkpoints::captured(const Membership& membership, const Epochs& epochs) const {
  return std::all_of(membership.members().begin(), membership.members().end(),
                     [&](const auto& entry) {
                       const auto& [key, member] = entry;
                       return !epochs.chunks().owns(key, member) ||
                              (member.report.prepared_epoch() == epochs.number() &&
                               member.report.shard().captured_checkpoint() >= pending_->version);
                     });
}

Checkpoints::Failure Checkpoints::followPushes(const Membership& membership, const Epochs& epochs,
                                               const JobSteps& steps, Tickets& tickets,
                                               TimePoint now, Outbox& out) {
  const PushTickets& pushes = *tickets.pushes();
  const std::int64_t first = epochs.info().first_step();
  if (!committing() && newestStep() < first) {
    Failure failure = tryCommit(first, membership, epochs, steps, &pushes, now, out);
    if (failure) return failure;
  }
  // A stop names its version itself.
  if (epochs.phase() == v1::PHASE_STOPPING) return std::nullopt;
  const bool last = pushes.over();
  if (!pending_ && !pushes.draining() && !last && now >= next_) {
    next_ = now + every_;
    tickets.drain();
    out.changed();
  }
  const bool wanted = pushes.draining() || last;
  const std::int64_t version = pushes.version();
  // Without a push since the last checkpoint there is nothing to copy, but training must go on.
  const bool news = captured_ < version || pushes.draining();
  if (wanted && !pending_ && news && pushes.drained()) {
    if (unwritable_ != version && newestStep() < version) {
      pending_ = Pending{version, now, ""};
      marks_[version] = {pushes.position(), pushes.unread()};
    }
    out.changed();
    if (!pending_) tickets.resume();  // nothing has been pushed since the last one
  }
  if (!pending_) return std::nullopt;
  if (captured_ < pending_->version && captured(membership, epochs)) {
    captured_ = pending_->version;
    tickets.resume();
    out.changed();
  }
  return tryCommit(pending_->version, membership, epochs, steps, &pushes, now, out);
}

Checkpoints::Failure Checkpoints::tryCommit(std::int64_t version, const Membership& membership,
                                            const Epochs& epochs, const JobSteps& steps,
                                            const PushTickets* pushes, TimePoint now, Outbox& out) {
  if (committing()) return std::nullopt;
  Manifest manifest;
  for (const MemberKey& key : epochs.writers(membership)) {
    const v1::ShardFile* found = nullptr;
    for (const v1::ShardFile& file : membership.find(key)->report.written()) {
      if (file.epoch() == epochs.number() && file.version() == version) found = &file;
    }
    if (found == nullptr) return std::nullopt;
    if (!found->error().empty()) {
      const std::string why = fmt::format("{}: {}", membership.nameOf(key), found->error());
      return failed(version, why, epochs, steps, out);
    }
    const bool delta = !found->base().empty();
    manifest.files.push_back({found->name(), found->size(), found->sha256(), delta});
    if (delta) manifest.base = found->base();  // that of one view, in all that are
  }
  manifest.job_uid = job_uid_;
  manifest.step = version;
  manifest.epoch = epochs.number();
  if (const auto mark = marks_.find(version); mark != marks_.end()) {
    manifest.position = mark->second.position;
    manifest.unread = mark->second.unread;
  } else if (pushes != nullptr) {
    manifest.position = pushes->position();
    manifest.unread = pushes->unread();
  } else {
    manifest.position = steps.plan().positionOf(version);
  }
  manifest.epochs = steps.records();
  manifest.history = epochs.info().lineage();
  manifest.history_from = epochs.info().lineage_from();
  committing_ = version;
  committing_since_ = now;
  out.add(CommitAction{std::move(manifest)});
  return std::nullopt;
}

// The former one stays.
Checkpoints::Failure Checkpoints::failed(std::int64_t version, const std::string& why,
                                         const Epochs& epochs, const JobSteps& steps, Outbox& out) {
  unwritable_ = version;
  if (pending_ && pending_->version == version) pending_.reset();
  if (version == steps.count() || epochs.phase() == v1::PHASE_STOPPING) {
    return fmt::format("the last checkpoint (step {}) could not be written: {}", version, why);
  }
  if (!std::exchange(failed_, true))
    out.log(fmt::format("checkpoint at step {} failed, training goes on: {}", version, why), true);
  return std::nullopt;
}

Checkpoints::Failure Checkpoints::onCommitted(const Manifest& manifest, const Status& status,
                                              const Epochs& epochs, const JobSteps& steps,
                                              TimePoint now, Outbox& out) {
  const std::int64_t version = std::exchange(committing_, -1);
  if (!status.ok())
    return failed(version, std::string(fromAbsl(status.message())), epochs, steps, out);
  // The last one of a run is not asked for: its time begins with the last server's file.
  const bool asked = pending_ && pending_->version == version;
  times_.observe(toSeconds(now - (asked ? pending_->since : committing_since_)));
  // Of one that was asked for earlier and is not whole yet, while the last step's is, nothing comes
  // any more: the newest one would go back to it.
  if (pending_ && pending_->version <= version) pending_.reset();
  newest_ = manifest;
  if (manifest.base.empty()) whole_since_ = now;
  marks_.erase(marks_.begin(), marks_.lower_bound(version));
  newest_unix_ms_ = manifest.unix_ms;
  failed_ = false;
  const std::string delta = manifest.base.empty() ? "" : ", a delta of " + manifest.base;
  out.log(fmt::format("checkpoint {} committed{}", manifest.fileName(), delta));
  out.changed();
  return std::nullopt;
}

void Checkpoints::endEpoch() {
  pending_.reset();
  unwritable_ = -1;
}

void Checkpoints::startEpoch(bool kept, const PushTickets::Start& start) {
  captured_ = -1;
  marks_.clear();
  if (!kept) marks_[start.step] = {start.position, start.unread};
}

void Checkpoints::begin(TimePoint now) {
  next_ = std::min(next_, now + every_);
}

void Checkpoints::tell(v1::View& view) const {
  view.set_checkpoint_at(pending_ ? pending_->version : -1);
  if (pending_ && !pending_->base.empty()) view.set_checkpoint_base(pending_->base);
  view.set_last_checkpoint(newestStep());
}

void Checkpoints::tell(v1::JobProgress& progress) const {
  progress.set_has_checkpoint(newest_.has_value());
  progress.set_checkpoint_step(newest_ ? newest_->step : 0);
  progress.set_checkpoint_unix_ms(newest_unix_ms_);
}

void Checkpoints::measure(v1::Measurements& measured) const {
  setBuckets(*measured.mutable_checkpoint_times(), times_);
  measured.set_checkpoint_bytes(newest_ ? bytesOf(*newest_) : 0);
}

}  // namespace trainyard::runtime
