#include "runtime/coordinator/coordinator.h"

#include <algorithm>
#include <utility>

#include "base/core/exit_code.h"
#include "fmt/format.h"
#include "runtime/coordinator/incarnation.h"

namespace trainyard::runtime {

Coordinator::Coordinator(CoordinatorConfig config, v1::Membership membership,
                         std::optional<Manifest> newest, TimePoint now)
    : config_(std::move(config)),
      membership_(config_, membership, now),
      epochs_(config_, std::max(newest ? newest->epoch : 0, config_.used_epoch), now),
      steps_(config_, membership_, newest),
      progress_(config_, newest ? newest->step : 0),
      evaluations_(config_),
      tickets_(config_),
      checkpoints_(config_, std::move(newest), now) {
  out_.changed();
  if (!config_.finished) return;
  evaluations_.setNewest(*config_.finished);
  steps_.end(config_.finished->version());
  progress_.reach(config_.finished->version());
  epochs_.setDone();
}

void Coordinator::setMembership(const v1::Membership& membership, TimePoint now) {
  if (!membership_.isNews(membership)) return;
  const bool started = !membership_.members().empty() && steps_.begun();
  if (started) progress_.onChange(now);
  membership_.setDocument(membership, started, now);
  out_.changed();
  dismissUnwanted();
}

v1::View Coordinator::view() const {
  v1::View view;
  view.set_sequence(out_.sequence());
  *view.mutable_coordinator() = config_.self;
  epochs_.tell(view);
  checkpoints_.tell(view);
  evaluations_.tell(view);
  progress_.tell(view);
  norm_.tell(view);
  tickets_.tell(view);
  view.set_stop_at(stop_.version());
  view.set_failure(failure_);
  view.set_table_full(failure_reason_ == kTableFull);
  view.set_waiting_for(waiting_);
  view.set_steps(steps_.count());
  view.set_hold(rest_.asked() && tickets_.pushes() == nullptr);
  return view;
}

// A task of a membership that this process has not read yet has not left: it is asked to come
// again.
void Coordinator::replyLeft(std::uint64_t ticket, std::int64_t revision) {
  v1::View left = view();
  left.set_left(revision <= membership_.document().revision());
  out_.add(ReplyAction{ticket, left});
}

void Coordinator::dismissUnwanted() {
  const std::vector<Member> gone = membership_.dismissUnwanted(
      [this](const MemberKey& key, const Member& member) { return epochs_.needs(key, member); });
  for (const Member& member : gone) {
    if (member.ticket) replyLeft(*member.ticket, member.report.revision());
  }
}

void Coordinator::onReport(const v1::MemberReport& report, std::uint64_t ticket, TimePoint now) {
  const MemberKey key = keyOf(report.id());
  if (!steps_.begun() && !epochs_.over() && epochs_.chunks().elastic())
    membership_.admitLeaver(report, key);
  if (membership_.dismissed(report, key)) return replyLeft(ticket, report.revision());
  const std::string refusal = membership_.refusalOf(report, key);
  if (!refusal.empty()) {
    // A task of a membership that this process has not read yet is asked to come again, not sent
    // away.
    v1::View refused = view();
    if (report.revision() <= membership_.document().revision() || membership_.find(key) != nullptr)
      refused.set_refusal(refusal);
    out_.add(ReplyAction{ticket, refused});
    return;
  }
  if (const auto earlier = membership_.unpark(key)) out_.add(ReplyAction{*earlier, view()});
  accept(key, report, now);
  // It had to leave, and came again.
  if (membership_.find(key) == nullptr) return replyLeft(ticket, report.revision());
  membership_.park(key, ticket, now);
  evaluate(now);
}

void Coordinator::accept(const MemberKey& key, const v1::MemberReport& report, TimePoint now) {
  const bool fresh = membership_.accept(key, report, now);
  epochs_.heard(report.highest_epoch());
  addSquares(key, report, now);
  if (key.role == v1::ROLE_WORKER && report.worker().epoch() == epochs_.number())
    tickets_.onReport(key.index, report.worker());
  if (report.has_abort()) {
    const std::string& variable = report.abort().variable();
    fail(fmt::format("{}: step {}{}: {}", membership_.nameOf(key), report.abort().step(),
                     variable.empty() ? "" : fmt::format(", variable {}", variable),
                     report.abort().reason()),
         now, report.abort().table_full() ? kTableFull : kDiverged);
  }
  followFailure(key, report, now);
  if (!fresh || epochs_.over()) return;
  out_.log(fmt::format("{} joined (incarnation {}.{})", membership_.nameOf(key),
                       report.incarnation().created(), report.incarnation().start()));
  const Member* member = membership_.find(key);
  if (epochs_.phase() == v1::PHASE_SEALING || member == nullptr) return;
  if (member->in_epoch || (key.role == v1::ROLE_PS && !member->newcomer))
    endEpoch(fmt::format("{} started again", membership_.nameOf(key)), now);
}

// A sum of an earlier epoch is of gradients that may come again, perhaps with other last bits.
// While sealing, a member may know this epoch's number from an earlier coordinator.
void Coordinator::addSquares(const MemberKey& key, const v1::MemberReport& report, TimePoint now) {
  if (epochs_.over() || epochs_.phase() == v1::PHASE_SEALING) return;
  if (!report.shard().has_squares() || report.prepared_epoch() != epochs_.number()) return;
  const auto problem = norm_.add(key, report.shard().squares());
  if (problem) fail(fmt::format("{}: {}", membership_.nameOf(key), *problem), now);
}

// AllReduce: a rank that cannot go on ends the epoch for all.
void Coordinator::followFailure(const MemberKey& key, const v1::MemberReport& report,
                                TimePoint now) {
  if (!config_.ring || epochs_.over() || epochs_.phase() == v1::PHASE_SEALING) return;
  if (!report.has_ring_failure() || report.ring_failure().epoch() != epochs_.number()) return;
  const std::string why =
      fmt::format("{}: {}", membership_.nameOf(key), report.ring_failure().message());
  if (!group_failures_.add(progress_.version())) return endEpoch(why, now);
  fail(fmt::format("the workers failed to work together {} times in a row: {}",
                   group_failures_.inARow(), why),
       now);
}

void Coordinator::onTake(const v1::TakeRequest& request, std::uint64_t call, TimePoint now) {
  const Member* member = membership_.find(keyOf(request.id()));
  if (!tickets_.asked(steps_.plan()) || !epochs_.computing() ||
      request.job_uid() != config_.job_uid || request.epoch() != epochs_.number() ||
      member == nullptr || !same(member->report.incarnation(), request.incarnation()))
    return Tickets::refuse(call, epochs_.number(), out_);
  if (tickets_.ask(request, call, epochs_.number(), now, out_)) evaluate(now);
}

void Coordinator::onTick(TimePoint now) {
  evaluate(now);
}

// Everything that follows from what is known now; idempotent.
void Coordinator::evaluate(TimePoint now) {
  if (!epochs_.over()) {
    if (const auto why = epochs_.broken(membership_, now)) endEpoch(*why, now);
  }
  if (epochs_.phase() == v1::PHASE_SEALING) trySealed(now);
  if (epochs_.phase() == v1::PHASE_PREPARING) tryPrepared(now);
  if (epochs_.computing()) {
    tickets_.follow(epochs_.number(), now, out_);
    progress_.follow(membership_, epochs_.info(), tickets_.pushes(), now, out_);
    norm_.follow(membership_, epochs_.chunks(), out_);
    evaluations_.follow(membership_, steps_, out_);
    if (!followChange(now)) {
      followCheckpoints(now);
      tryDone(now);
    }
  }
  if (stop_.asked() && !epochs_.over()) followStop(now);
  if (epochs_.over()) tickets_.endEpoch(epochs_.number(), out_);
  answerDue(now);
}

void Coordinator::answerDue(TimePoint now) {
  const std::string waiting = epochs_.over() ? "" : waitingFor(now);
  if (waiting != waiting_) {
    waiting_ = waiting;
    out_.changed();
  }
  for (const std::uint64_t ticket : membership_.unparkDue(out_, now))
    out_.add(ReplyAction{ticket, view()});
}

bool Coordinator::finished(TimePoint now) const {
  if (!epochs_.over()) return false;
  if (now - epochs_.phaseSince() >= config_.leave_limit) return true;
  return membership_.allLeave(epochs_.phase() == v1::PHASE_DONE, now);
}

std::string Coordinator::waitingFor(TimePoint now) const {
  return epochs_.waitingFor(membership_, now);
}

std::vector<CoordinatorAction> Coordinator::takeActions() {
  return out_.take();
}

void Coordinator::measure(v1::Measurements& measured) const {
  checkpoints_.measure(measured);
  progress_.measure(measured);
}

std::vector<v1::HeardTask> Coordinator::heard(TimePoint now) const {
  std::vector<v1::HeardTask> heard;
  for (const auto& [key, member] : membership_.members()) {
    const auto processes = static_cast<std::uint32_t>(
        key.role == v1::ROLE_WORKER ? std::max(1, config_.processes_per_pod) : 1);
    if (key.index % processes != 0 || !membership_.present(member, now)) continue;
    v1::HeardTask& task = heard.emplace_back();
    task.mutable_id()->set_role(key.role);
    task.mutable_id()->set_index(key.index / processes);
    task.set_created(member.report.incarnation().created());
    task.set_start(member.report.incarnation().start());
    task.set_revision(member.report.revision());
  }
  return heard;
}

namespace {

// Until the first epoch of this process the job has come as far as with the coordinators before.
// Who hears of less would tell the next one of less, and what was lost in between would count for
// nothing.
void tellFormer(const v1::Membership& told, v1::JobProgress& progress) {
  progress.set_step(std::max(progress.step(), told.reached()));
  progress.set_lost_steps(std::max(progress.lost_steps(), told.lost_steps()));
}

}  // namespace

v1::JobProgress Coordinator::progress(TimePoint now) const {
  v1::JobProgress progress;
  epochs_.tell(membership_, progress);
  progress_.tell(progress, steps_.stepSamples(membership_));
  if (!steps_.begun()) tellFormer(membership_.document(), progress);
  evaluations_.tell(progress);
  tickets_.tell(progress);
  checkpoints_.tell(progress);
  progress.set_steps(steps_.count());
  progress.set_failure(failure_);
  progress.set_failure_reason(std::string(failure_reason_));
  progress.set_waiting_for(epochs_.over() ? "" : waitingFor(now));
  return progress;
}

}  // namespace trainyard::runtime
