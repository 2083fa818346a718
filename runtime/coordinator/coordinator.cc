#include "runtime/coordinator/coordinator.h"

#include <algorithm>
#include <utility>

#include "base/core/strings.h"
#include "base/metrics/bucket_message.h"
#include "fmt/format.h"
#include "runtime/coordinator/incarnation.h"
#include "runtime/coordinator/names.h"

namespace trainyard::runtime {
namespace {

std::int64_t bytesOf(const Manifest& manifest) {
  std::int64_t sum = 0;
  for (const auto& file : manifest.files) sum += static_cast<std::int64_t>(file.size);
  return sum;
}

}  // namespace

Coordinator::Coordinator(CoordinatorConfig config, v1::Membership membership,
                         std::optional<Manifest> newest, TimePoint now)
    : config_(std::move(config)), newest_(std::move(newest)) {
  if (config_.tickets) tickets_.emplace(*config_.tickets);
  phase_since_ = now;
  next_checkpoint_ = now + config_.checkpoint_every;
  if (newest_) {
    highest_epoch_ = newest_->epoch;
    progress_ = newest_->step;
    checkpoint_unix_ms_ = newest_->unix_ms;
  }
  highest_epoch_ = std::max(highest_epoch_, config_.used_epoch);
  setMembership(membership, now);
  epoch_.set_epoch(highest_epoch_ + 1);
  // Before the workers have told the size of their data only a former checkpoint knows it.
  steps_ =
      newest_ ? stepsFrom(newest_->step, newest_->position, newest_->data_samples) : wantedSteps();
  if (config_.finished) {
    evaluation_ = *config_.finished;
    steps_ = progress_ = evaluation_.version();
    phase_ = v1::PHASE_DONE;
  }
}

void Coordinator::setMembership(const v1::Membership& membership, TimePoint now) {
  if (membership.revision() <= membership_.revision() && !members_.empty()) return;
  const bool started = !members_.empty() && !epochs_.empty();
  if (started) changed_at_ = now;
  membership_ = membership;
  for (auto& [key, member] : members_) member.wanted = false;
  for (const v1::MemberTask& task : membership.tasks()) {
    const MemberKey key{task.id().role(), task.id().index()};
    const auto [it, fresh] = members_.try_emplace(key);
    it->second.wanted = true;
    it->second.place = task;
    dismissed_.erase(key);
    if (!fresh) continue;
    it->second.last_seen = now;
    it->second.newcomer = started && (key.role == v1::ROLE_WORKER || elastic());
  }
  changed();
  dismissUnwanted();
}

// Of the epoch that runs; before it has begun, of the membership.
int Coordinator::workers() const {
  return static_cast<int>(std::count_if(members_.begin(), members_.end(), [this](const auto& m) {
    return m.first.role == v1::ROLE_WORKER && (m.second.in_epoch || epoch_.members().empty());
  }));
}

// Of one worker's push, in the asynchronous modes.
int Coordinator::pushSamples() const {
  if (config_.global_batch_size > 0) return std::max(1, config_.global_batch_size / workers());
  return config_.batch_size;
}

std::int64_t Coordinator::stepSamples() const {
  if (tickets_) return std::int64_t{pushSamples()} * config_.tickets->aggregate;
  if (config_.global_batch_size > 0) return config_.global_batch_size;
  return std::int64_t{workers()} * config_.batch_size;
}

v1::DataFingerprint Coordinator::data() const {
  for (const auto& [key, member] : members_) {
    if (key.role == v1::ROLE_WORKER && member.joined) return member.report.data();
  }
  return {};
}

bool Coordinator::over() const {
  return phase_ == v1::PHASE_DONE || phase_ == v1::PHASE_STOPPED || phase_ == v1::PHASE_FAILED;
}

bool Coordinator::present(const Member& member, TimePoint now) const {
  return member.joined && now - member.last_seen <= config_.dead_after;
}

void Coordinator::changed() {
  ++sequence_;
  worker_sequence_ = sequence_;
}

void Coordinator::enter(v1::Phase phase, TimePoint now) {
  phase_ = phase;
  phase_since_ = now;
  changed();
}

v1::View Coordinator::viewFor() const {
  v1::View view;
  view.set_sequence(sequence_);
  *view.mutable_coordinator() = config_.self;
  view.set_phase(phase_);
  *view.mutable_epoch() = epoch_;
  view.set_stop_at(stop_at_);
  view.set_checkpoint_at(checkpoint_ && !checkpoint_->committing ? checkpoint_->version : -1);
  view.set_failure(failure_);
  *view.mutable_evaluation() = evaluation_;
  view.set_last_checkpoint(newest_ ? newest_->step : -1);
  view.set_waiting_for(waiting_);
  view.set_lost_steps(lost_steps_);
  view.set_progress(progress_);
  if (norm_) *view.mutable_gradient_norm() = *norm_;
  view.set_draining(tickets_ && (tickets_->draining() || tickets_->over()));
  view.set_steps(steps_);
  view.set_hold(hold_ > 0 && !tickets_);
  return view;
}

std::string Coordinator::nameOf(const MemberKey& key) const {
  return memberName(key.role, key.index, config_.processes_per_pod);
}

std::string Coordinator::refusalOf(const v1::MemberReport& report, const MemberKey& key) const {
  const std::string name = nameOf(key);
  if (report.job_uid() != config_.job_uid) return fmt::format("{} belongs to another job", name);
  if (report.protocol_min() > kProtocol || report.protocol_max() < kProtocol) {
    return fmt::format("{} speaks protocol {} to {}, this job speaks {}", name,
                       report.protocol_min(), report.protocol_max(), kProtocol);
  }
  const auto known = members_.find(key);
  if (known == members_.end()) {
    return fmt::format("{} is not in membership revision {}", name, membership_.revision());
  }
  const Member& member = known->second;
  if (member.joined && order(report.incarnation()) < order(member.report.incarnation())) {
    return fmt::format("{} was replaced by a newer process", name);
  }
  if (report.job_digest() != config_.job_digest) {
    return fmt::format("{} was started with other training settings than {}", name,
                       config_.ring ? "worker-0" : "ps-0");
  }
  if (key.role != v1::ROLE_WORKER) return "";
  for (const auto& [other_key, other] : members_) {
    if (other_key.role != v1::ROLE_WORKER || other_key == key || !other.joined) continue;
    const v1::DataFingerprint& a = report.data();
    const v1::DataFingerprint& b = other.report.data();
    if (a.samples() != b.samples() || a.eval_samples() != b.eval_samples() ||
        a.sha256() != b.sha256()) {
      return fmt::format(
          "{} has other data than {}: {} training and {} evaluation samples, sha256 {} against {} "
          "and {}, {}",
          name, nameOf(other_key), a.samples(), a.eval_samples(), a.sha256().substr(0, 12),
          b.samples(), b.eval_samples(), b.sha256().substr(0, 12));
    }
    break;
  }
  return "";
}

void Coordinator::onReport(const v1::MemberReport& report, std::uint64_t ticket, TimePoint now) {
  const MemberKey key{report.id().role(), report.id().index()};
  meetLeaver(report, key);
  if (dismissed(report, key)) return dismissCall(ticket, report.revision());
  const std::string refusal = refusalOf(report, key);
  if (!refusal.empty()) {
    // A task of a membership that this process has not read yet is asked to come again, not sent
    // away.
    v1::View view = viewFor();
    if (report.revision() <= membership_.revision() || members_.contains(key))
      view.set_refusal(refusal);
    actions_.push_back(ReplyAction{ticket, view});
    return;
  }
  if (members_[key].ticket) answer(members_[key], now);
  accept(key, report, now);
  const auto accepted = members_.find(key);
  // It had to leave, and came again.
  if (accepted == members_.end()) return dismissCall(ticket, report.revision());
  accepted->second.ticket = ticket;
  accepted->second.parked_since = now;
  evaluate(now);
}

void Coordinator::accept(const MemberKey& key, const v1::MemberReport& report, TimePoint now) {
  Member& member = members_[key];
  const bool fresh =
      !member.joined || order(report.incarnation()) > order(member.report.incarnation());
  member.report = report;
  member.joined = true;
  member.last_seen = now;
  highest_epoch_ = std::max(highest_epoch_, report.highest_epoch());
  keepNormPart(key, report, now);
  const v1::WorkerState& worker = report.worker();
  if (tickets_ && key.role == v1::ROLE_WORKER && worker.epoch() == epoch_.epoch()) {
    tickets_->onReport(key.index, worker.finished(),
                       worker.pushing() ? std::optional(worker.ticket()) : std::nullopt,
                       worker.evaluating());
  }
  if (report.has_abort() && !over()) {
    fail(fmt::format("{}: step {}, variable {}: {}", nameOf(key), report.abort().step(),
                     report.abort().variable().empty() ? "-" : report.abort().variable(),
                     report.abort().reason()),
         now);
  }
  followRing(key, report, now);
  if (!fresh || over()) return;
  actions_.push_back(
      LogAction{fmt::format("{} joined (incarnation {}.{})", nameOf(key),
                            report.incarnation().created(), report.incarnation().start())});
  const bool server = key.role == v1::ROLE_PS && !member.newcomer;
  if (phase_ != v1::PHASE_SEALING && (member.in_epoch || server)) {
    beginEpoch(fmt::format("{} started again", nameOf(key)), now);
  }
}

void Coordinator::answer(Member& member, TimePoint) {
  actions_.push_back(ReplyAction{*member.ticket, viewFor()});
  member.ticket.reset();
}

void Coordinator::requestStop(TimePoint now, std::optional<Duration> within) {
  if (over()) return;
  const TimePoint by = now + within.value_or(config_.stop_limit);
  stop_by_ = stop_requested_ ? std::min(stop_by_, by) : by;
  if (std::exchange(stop_requested_, true)) return;
  stop_since_ = now;
  evaluate(now);
}

void Coordinator::onTick(TimePoint now) {
  evaluate(now);
}

// Everything that follows from what is known now; idempotent.
void Coordinator::evaluate(TimePoint now) {
  if (!over()) checkLiveness(now);
  if (phase_ == v1::PHASE_SEALING) trySealed(now);
  if (phase_ == v1::PHASE_PREPARING) tryPrepared(now);
  if (phase_ == v1::PHASE_ACTIVE || phase_ == v1::PHASE_STOPPING) {
    followTakes(now);
    followProgress(now);
    followNorm();
    followEvaluation();
    if (!followChange(now)) {
      if (tickets_) {
        followTickets(now);
      } else {
        followCheckpoint(now);
      }
      tryDone(now);
    }
  }
  if (stop_requested_ && !over()) followStop(now);
  if (over()) endTakes();
  const std::string waiting = over() ? "" : waitingFor(now);
  if (waiting != waiting_) {
    waiting_ = waiting;
    changed();
  }
  for (auto& [key, member] : members_) {
    if (!member.ticket) continue;
    const v1::MemberReport& report = member.report;
    const std::uint64_t news = key.role == v1::ROLE_WORKER ? worker_sequence_ : sequence_;
    const bool stale =
        report.seen_view() < news || order(report.seen_coordinator()) != order(config_.self);
    // Who leaves waits only for this.
    if (stale || report.leaving() || now - member.parked_since >= config_.heartbeat)
      answer(member, now);
  }
}

void Coordinator::checkLiveness(TimePoint now) {
  if (phase_ == v1::PHASE_SEALING) return;
  for (const auto& [key, member] : members_) {
    if (present(member, now) || !awaited(key, member, now)) continue;
    beginEpoch(member.joined ? fmt::format("{} has not been heard of for {:.0f} s", nameOf(key),
                                           toSeconds(config_.dead_after))
                             : fmt::format("{} is to join", nameOf(key)),
               now);
    return;
  }
  int in_epoch = 0;
  for (const v1::EpochMember& m : epoch_.members())
    in_epoch += members_.contains({m.id().role(), m.id().index()});
  if (in_epoch != epoch_.members_size()) beginEpoch("a task has left", now);
}

// Nobody of the former epoch gets an answer any more once it is sealed.
void Coordinator::beginEpoch(const std::string& why, TimePoint now, bool planned) {
  highest_epoch_ = std::max(highest_epoch_, epoch_.epoch()) + 1;
  actions_.push_back(LogAction{fmt::format("epoch {} ends: {}", epoch_.epoch(), why), !planned});
  if (!epochs_.empty() && !epoch_ended_) epoch_ended_ = now;
  endTakes();
  epoch_.Clear();
  epoch_.set_epoch(highest_epoch_);
  checkpoint_.reset();
  norm_parts_.clear();
  norm_.reset();
  unwritable_ = -1;
  stop_at_ = -1;
  hold_ = 0;
  rate_.reset();
  for (auto& [key, member] : members_) member.in_epoch = member.source = false;
  enter(v1::PHASE_SEALING, now);
  dismissUnwanted();
}

std::string Coordinator::waitingFor(TimePoint now) const {
  std::vector<std::string> names;
  for (const auto& [key, member] : members_) {
    if (!awaited(key, member, now)) continue;
    bool waits = !present(member, now);
    if (phase_ == v1::PHASE_SEALING) waits = waits || member.report.sealed_epoch() < epoch_.epoch();
    if (phase_ == v1::PHASE_PREPARING && holds(key) && member.in_epoch) {
      waits = waits || member.report.prepared_epoch() < epoch_.epoch();
    }
    if (waits) names.push_back(nameOf(key));
  }
  return join(names, ", ");
}

void Coordinator::trySealed(TimePoint now) {
  // A member may know this number from an earlier coordinator: what it sealed was another epoch.
  for (const auto& [key, member] : members_) {
    if (!member.joined || order(member.report.seen_coordinator()) == order(config_.self)) continue;
    if (member.report.highest_epoch() < epoch_.epoch()) continue;
    epoch_.set_epoch(highest_epoch_ + 1);
    changed();
    return;
  }
  if (committing_ >= 0) return;  // the checkpoint to return to is being decided
  if (!knowsHolders(now)) return;
  for (const auto& [key, member] : members_) {
    if (!awaited(key, member, now)) continue;
    if (!present(member, now) || member.report.sealed_epoch() != epoch_.epoch()) return;
    if (order(member.report.seen_coordinator()) != order(config_.self)) return;
  }
  if (config_.ring ? !placesKnown(now) : !serversPlaced(now)) return;
  startFrom(now);
}

void Coordinator::tryPrepared(TimePoint now) {
  for (const auto& [key, member] : members_) {
    if (!holds(key) || !member.in_epoch) continue;
    const std::string& problem = member.report.shard().problem();
    if (!problem.empty()) return fail(fmt::format("{}: {}", nameOf(key), problem), now);
    if (member.report.prepared_epoch() != epoch_.epoch()) return;
  }
  next_checkpoint_ = std::min(next_checkpoint_, now + config_.checkpoint_every);
  rate_.observe(epoch_.first_step(), now);
  if (config_.backup_workers > 0) places_.startEpoch(plan_);
  chunksAreThere();
  enter(v1::PHASE_ACTIVE, now);
  dismissUnwanted();
}

bool Coordinator::finished(TimePoint now) const {
  if (!over()) return false;
  if (now - phase_since_ >= config_.leave_limit) return true;
  return std::all_of(members_.begin(), members_.end(), [&](const auto& m) {
    return m.second.report.leaving() || (!present(m.second, now) && phase_ != v1::PHASE_DONE) ||
           (m.second.newcomer && !m.second.joined);
  });
}

std::vector<CoordinatorAction> Coordinator::takeActions() {
  return std::exchange(actions_, {});
}

void Coordinator::measure(v1::Measurements& measured) const {
  setBuckets(*measured.mutable_checkpoint_times(), checkpoint_times_);
  setBuckets(*measured.mutable_epoch_change_times(), epoch_change_times_);
  measured.set_checkpoint_bytes(newest_ ? bytesOf(*newest_) : 0);
}

v1::JobProgress Coordinator::progress(TimePoint now) const {
  v1::JobProgress progress;
  progress.set_step(progress_);
  progress.set_steps(steps_);
  progress.set_examples_per_second(rate_.stepsPerSecond() * static_cast<double>(stepSamples()));
  progress.set_has_loss(loss_step_ >= 0);
  progress.set_loss(loss_);
  if (evaluation_.samples() > 0) {
    progress.set_evaluated(true);
    progress.set_accuracy(static_cast<double>(evaluation_.hits()) /
                          static_cast<double>(evaluation_.samples()));
    progress.set_accuracy_step(evaluation_.version());
  }
  progress.set_epoch(epoch_.epoch());
  progress.set_lost_steps(lost_steps_);
  progress.set_has_checkpoint(newest_.has_value());
  progress.set_checkpoint_step(newest_ ? newest_->step : 0);
  progress.set_checkpoint_unix_ms(checkpoint_unix_ms_);
  progress.set_resumed_from_step(resumed_from_);
  if (phase_ == v1::PHASE_DONE) progress.set_outcome("succeeded");
  if (phase_ == v1::PHASE_STOPPED) progress.set_outcome("stopped");
  if (phase_ == v1::PHASE_FAILED) progress.set_outcome("failed");
  progress.set_failure(failure_);
  progress.set_skipped(places_.skipped());
  if (tickets_) {
    progress.set_spread(tickets_->spread());
    progress.set_partial(tickets_->partial());
  }
  progress.set_waiting_for(over() ? "" : waitingFor(now));
  return progress;
}

}  // namespace trainyard::runtime
