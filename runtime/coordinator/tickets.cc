#include "runtime/coordinator/tickets.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "runtime/coordinator/incarnation.h"

namespace trainyard::runtime {

Tickets::Tickets(const CoordinatorConfig& config)
    : heartbeat_(config.heartbeat), aggregate_(config.tickets ? config.tickets->aggregate : 1) {
  if (config.tickets) pushes_.emplace(*config.tickets);
}

void Tickets::refuse(std::uint64_t call, std::int64_t epoch, Outbox& out) {
  v1::TakeReply no;
  no.set_code(v1::TAKE_WRONG_EPOCH);
  no.set_epoch(epoch);
  out.add(TakeReplyAction{call, no});
}

bool Tickets::ask(const v1::TakeRequest& request, std::uint64_t call, std::int64_t epoch,
                  TimePoint now, Outbox& out) {
  Take& take = takes_[request.id().index()];
  if (request.sequence() < take.request.sequence()) {
    refuse(call, epoch, out);
    return false;
  }
  if (take.call) {  // its caller has given it up
    v1::TakeReply again;
    again.set_code(v1::TAKE_AGAIN);
    out.add(TakeReplyAction{*std::exchange(take.call, std::nullopt), again});
  }
  if (request.sequence() > take.request.sequence()) {
    take.reply.reset();
    take.waited = false;
  }
  take.request = request;
  take.call = call;
  take.since = now;
  if (!take.reply) return true;
  send(take, *take.reply, epoch, out);
  return false;
}

void Tickets::send(Take& take, v1::TakeReply reply, std::int64_t epoch, Outbox& out) {
  if (!take.call) return;
  reply.set_epoch(epoch);
  if (reply.code() != v1::TAKE_AGAIN) take.reply = reply;
  out.add(TakeReplyAction{*std::exchange(take.call, std::nullopt), std::move(reply)});
}

std::optional<v1::TakeReply> Tickets::answer(const v1::TakeRequest& request) {
  v1::TakeReply reply;
  reply.set_code(v1::TAKE_OK);
  if (!pushes_) {
    const StepPlaces::Answer answer = places_.ask(request.step(), request.with_gradient());
    if (answer.kind == StepPlaces::Answer::Kind::kWait) return std::nullopt;
    if (answer.kind == StepPlaces::Answer::Kind::kSkip) {
      reply.set_code(v1::TAKE_SKIP);
      reply.set_newest(answer.newest);
    } else {
      reply.set_place(static_cast<std::uint32_t>(answer.place));
    }
    return reply;
  }
  const auto answer =
      pushes_->ask({request.id().index(), request.ticket(), request.lease(), request.finished()});
  if (!answer) return std::nullopt;
  if (answer->over) reply.set_code(v1::TAKE_OVER);
  if (answer->ticket) reply.set_ticket(*answer->ticket);
  if (answer->lease) {
    reply.mutable_lease()->set_first(answer->lease->first);
    reply.mutable_lease()->set_samples(static_cast<std::int32_t>(answer->lease->samples));
  }
  return reply;
}

void Tickets::follow(std::int64_t epoch, TimePoint now, Outbox& out) {
  bool again = true;
  while (std::exchange(again, false)) {
    for (auto& [worker, take] : takes_) {
      if (!take.call) continue;
      if (std::optional<v1::TakeReply> found = answer(take.request)) {
        found->set_waited(take.waited);
        send(take, *std::move(found), epoch, out);
        again = true;  // one worker's clock may have held back another
        continue;
      }
      take.waited = true;
      if (now - take.since < heartbeat_) continue;
      v1::TakeReply later;
      later.set_code(v1::TAKE_AGAIN);
      send(take, std::move(later), epoch, out);
    }
  }
}

void Tickets::onReport(std::uint32_t worker, const v1::WorkerState& state) {
  if (!pushes_) return;
  pushes_->onReport(worker, state.finished(),
                    state.pushing() ? std::optional(state.ticket()) : std::nullopt,
                    state.evaluating());
}

bool Tickets::drain() {
  places_.freeze();
  if (!pushes_ || pushes_->draining()) return false;
  pushes_->drain();
  return true;
}

void Tickets::resume() {
  places_.resume();
  if (pushes_) pushes_->resume();
}

void Tickets::stop() {
  places_.freeze();
  if (pushes_) pushes_->stop();
}

void Tickets::endEpoch(std::int64_t epoch, Outbox& out) {
  for (auto& [worker, take] : takes_) {
    v1::TakeReply no;
    no.set_code(v1::TAKE_WRONG_EPOCH);
    send(take, std::move(no), epoch, out);
  }
  takes_.clear();
}

void Tickets::adopt(const v1::EpochInfo& epoch, const Membership& membership) {
  PushNews news;
  for (const auto& [key, member] : membership.members()) {
    const v1::ShardState& shard = member.report.shard();
    if (!member.joined || member.report.prepared_epoch() < epoch.lineage()) continue;
    news.tickets.add(NumberSet(shard.pushed_tickets()));
    news.samples.add(NumberSet(shard.pushed_samples()));
  }
  computed_.clear();
  for (const v1::EpochMember& m : epoch.members()) {
    if (m.id().role() != v1::ROLE_WORKER) continue;
    computed_[m.id().index()] = m.incarnation();
    const Member* member = membership.find(keyOf(m.id()));
    if (member == nullptr || !member->joined) continue;
    if (!same(member->report.incarnation(), m.incarnation())) continue;
    const v1::WorkerState& state = member->report.worker();
    PushNews::Worker& worker = news.workers.emplace_back();
    worker.index = m.id().index();
    worker.began = state.epoch() == epoch.epoch();
    worker.finished = state.finished();
    if (state.pushing()) worker.pushing = state.ticket();
    worker.own = {state.pushing_lease().first(), state.pushing_lease().samples()};
    if (state.has_lease()) worker.lease = {state.lease().first(), state.lease().samples()};
  }
  const std::int64_t samples = epoch.step_samples() / aggregate_;
  pushes_->restore(ledgerOf(epoch), news, std::max<std::int64_t>(1, samples));
}

std::vector<PushTickets::Worker> Tickets::workersOf(const Membership& membership,
                                                    std::int64_t lineage) const {
  std::vector<PushTickets::Worker> workers;
  for (const auto& [key, member] : membership.members()) {
    if (key.role != v1::ROLE_WORKER || !member.in_epoch) continue;
    const v1::WorkerState& state = member.report.worker();
    PushTickets::Worker& worker = workers.emplace_back();
    worker.index = key.index;
    const auto before = computed_.find(key.index);
    // What it holds of a history that has ended it drops when it sees the epoch.
    worker.stays = before != computed_.end() && state.epoch() >= lineage &&
                   same(before->second, member.report.incarnation());
    if (worker.stays && state.pushing()) worker.pushing = state.ticket();
    if (worker.stays) worker.finished = state.finished();
  }
  return workers;
}

PushTickets::Start Tickets::startEpoch(bool kept, const std::vector<SampleRange>& unread,
                                       const Membership& membership, const JobSteps& steps,
                                       v1::EpochInfo& epoch, Outbox& out) {
  const std::vector<PushTickets::Worker> workers = workersOf(membership, epoch.lineage());
  computed_.clear();
  for (const auto& [key, member] : membership.members()) {
    if (key.role == v1::ROLE_WORKER && member.in_epoch)
      computed_[key.index] = member.report.incarnation();
  }
  PushTickets::Start start;
  start.step = epoch.first_step();
  start.position = epoch.first_position();
  if (!kept) start.unread = unread;
  start.end_position = steps.endPosition(membership);
  start.steps = steps.wanted(membership);
  start.samples = steps.pushSamples(membership);
  const std::int64_t partial = pushes_->partial();
  pushes_->startEpoch(kept, start, workers);
  if (kept) {
    epoch.set_first_step(pushes_->version());
    epoch.set_first_position(pushes_->position());
  }
  if (pushes_->partial() > partial) {
    out.log(fmt::format("{} pushes of workers that died may be on some of the servers only",
                        pushes_->partial() - partial),
            true);
  }
  writeLedger(pushes_->ledger(), epoch);
  return start;
}

void Tickets::begin(const StepPlan& plan) {
  if (!pushes_) places_.startEpoch(plan);
}

void Tickets::tell(v1::View& view) const {
  view.set_draining(pushes_ && (pushes_->draining() || pushes_->over()));
}

void Tickets::tell(v1::JobProgress& progress) const {
  progress.set_skipped(places_.skipped());
  if (!pushes_) return;
  progress.set_spread(pushes_->spread());
  progress.set_partial(pushes_->partial());
}

}  // namespace trainyard::runtime
