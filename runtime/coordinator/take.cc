// The modes in which a worker asks before it pushes: places among the first gradients of a step
// (backup workers), tickets and samples (asynchronous modes), and checkpoints between two updates.
#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "runtime/coordinator/coordinator.h"
#include "runtime/coordinator/incarnation.h"
#include "runtime/coordinator/names.h"

namespace trainyard::runtime {
void Coordinator::onTake(const v1::TakeRequest& request, std::uint64_t call, TimePoint now) {
  v1::TakeReply no;
  no.set_code(v1::TAKE_WRONG_EPOCH);
  no.set_epoch(epoch_.epoch());
  const auto member = members_.find({request.id().role(), request.id().index()});
  const bool running = phase_ == v1::PHASE_ACTIVE || phase_ == v1::PHASE_STOPPING;
  const bool asks = tickets_ || plan_.backup_workers > 0;
  if (!asks || !running || request.job_uid() != config_.job_uid ||
      request.epoch() != epoch_.epoch() || member == members_.end() ||
      !same(member->second.report.incarnation(), request.incarnation())) {
    actions_.push_back(TakeReplyAction{call, no});
    return;
  }
  const std::uint32_t worker = request.id().index();
  Take& take = takes_[worker];
  if (request.sequence() < take.request.sequence()) {
    actions_.push_back(TakeReplyAction{call, no});
    return;
  }
  if (take.call) {  // its caller has given it up
    v1::TakeReply again;
    again.set_code(v1::TAKE_AGAIN);
    actions_.push_back(TakeReplyAction{*std::exchange(take.call, std::nullopt), again});
  }
  if (request.sequence() > take.request.sequence()) {
    take.reply.reset();
    take.waited = false;
  }
  take.request = request;
  take.call = call;
  take.since = now;
  if (take.reply) return replyToTake(worker, *take.reply);
  evaluate(now);
}

void Coordinator::replyToTake(std::uint32_t worker, v1::TakeReply reply) {
  Take& take = takes_[worker];
  if (!take.call) return;
  reply.set_epoch(epoch_.epoch());
  if (reply.code() != v1::TAKE_AGAIN) take.reply = reply;
  actions_.push_back(TakeReplyAction{*std::exchange(take.call, std::nullopt), std::move(reply)});
}

std::optional<v1::TakeReply> Coordinator::answerTake(const v1::TakeRequest& request) {
  v1::TakeReply reply;
  reply.set_code(v1::TAKE_OK);
  if (!tickets_) {
    const StepPlaces::Answer answer = places_.ask(request.step(), request.ticket());
    if (answer.kind == StepPlaces::Answer::Kind::kWait) return std::nullopt;
    if (answer.kind == StepPlaces::Answer::Kind::kSkip) {
      reply.set_code(v1::TAKE_SKIP);
      reply.set_newest(answer.newest);
    } else {
      reply.set_ticket(answer.place);
    }
    return reply;
  }
  const auto answer =
      tickets_->ask({request.id().index(), request.ticket(), request.lease(), request.finished()});
  if (!answer) return std::nullopt;
  if (answer->over) reply.set_code(v1::TAKE_OVER);
  if (answer->ticket) reply.set_ticket(*answer->ticket);
  if (answer->lease) {
    reply.mutable_lease()->set_first(answer->lease->first);
    reply.mutable_lease()->set_samples(static_cast<std::int32_t>(answer->lease->samples));
  }
  return reply;
}

// Answers all that can be answered; who waits longer than a heartbeat is asked to come again.
void Coordinator::followTakes(TimePoint now) {
  bool again = true;
  while (std::exchange(again, false)) {
    for (auto& [worker, take] : takes_) {
      if (!take.call) continue;
      if (std::optional<v1::TakeReply> reply = answerTake(take.request)) {
        reply->set_waited(take.waited);
        replyToTake(worker, *std::move(reply));
        again = true;  // one worker's clock may have held back another
        continue;
      }
      take.waited = true;
      if (now - take.since < config_.heartbeat) continue;
      v1::TakeReply later;
      later.set_code(v1::TAKE_AGAIN);
      replyToTake(worker, std::move(later));
    }
  }
}

void Coordinator::endTakes() {
  for (auto& [worker, take] : takes_) {
    v1::TakeReply reply;
    reply.set_code(v1::TAKE_WRONG_EPOCH);
    replyToTake(worker, std::move(reply));
  }
  takes_.clear();
}

void Coordinator::startTickets(bool kept) {
  std::vector<PushTickets::Worker> workers;
  for (const auto& [key, member] : members_) {
    if (key.role != v1::ROLE_WORKER || !member.in_epoch) continue;
    const v1::WorkerState& state = member.report.worker();
    PushTickets::Worker worker;
    worker.index = key.index;
    const auto before = computed_.find(key.index);
    // What it holds of a history that has ended it drops when it sees the epoch.
    worker.stays = before != computed_.end() && state.epoch() >= history_since_ &&
                   same(before->second, member.report.incarnation());
    if (worker.stays && state.pushing()) worker.pushing = state.ticket();
    if (worker.stays) worker.finished = state.finished();
    workers.push_back(worker);
  }
  computed_.clear();
  for (const auto& [key, member] : members_) {
    if (key.role == v1::ROLE_WORKER && member.in_epoch)
      computed_[key.index] = member.report.incarnation();
  }
  PushTickets::Start start;
  start.step = epoch_.first_step();
  start.position = epoch_.first_position();
  if (!kept && newest_) start.unread = newest_->unread;
  start.end_position = config_.passes * data().samples();
  start.steps = wantedSteps();
  start.samples = pushSamples();
  const std::int64_t partial = tickets_->partial();
  tickets_->startEpoch(kept, start, workers);
  if (kept) {
    epoch_.set_first_step(tickets_->version());
    epoch_.set_first_position(tickets_->position());
  }
  if (tickets_->partial() > partial) {
    actions_.push_back(
        LogAction{fmt::format("{} pushes of workers that died may be on some of the servers only",
                              tickets_->partial() - partial),
                  true});
  }
  writeLedger(tickets_->ledger(), epoch_);
  captured_ = -1;
  marks_.clear();
  if (!kept) marks_[start.step] = {start.position, start.unread};
}

void Coordinator::stopTickets() {
  if (tickets_) tickets_->stop();
  places_.freeze();
}

// Checkpoints between two updates: no ticket is given until all servers have copied their state.
void Coordinator::followTickets(TimePoint now) {
  if (committing_ < 0 && (!newest_ || newest_->step < epoch_.first_step()))
    tryCommit(epoch_.first_step(), now);
  if (phase_ == v1::PHASE_STOPPING) return;  // followStop names the version
  const bool last = tickets_->over();
  if (!checkpoint_ && !tickets_->draining() && !last && now >= next_checkpoint_) {
    next_checkpoint_ = now + config_.checkpoint_every;
    tickets_->drain();
    changed();
  }
  const bool wanted = tickets_->draining() || last;
  const std::int64_t version = tickets_->version();
  // Without a push since the last checkpoint there is nothing to copy, but training must go on.
  const bool news = captured_ < version || tickets_->draining();
  if (wanted && !checkpoint_ && news && tickets_->drained()) {
    if (unwritable_ != version && (!newest_ || newest_->step < version)) {
      checkpoint_ = PendingCheckpoint{version, now, false};
      marks_[version] = {tickets_->position(), tickets_->unread()};
    }
    changed();
    if (!checkpoint_) tickets_->resume();  // nothing has been pushed since the last one
  }
  if (!checkpoint_) return;
  const bool copied = std::all_of(members_.begin(), members_.end(), [&](const auto& m) {
    return !owns(m.first, m.second) ||
           (m.second.report.prepared_epoch() == epoch_.epoch() &&
            m.second.report.shard().captured_checkpoint() >= checkpoint_->version);
  });
  if (copied && captured_ < checkpoint_->version) {
    captured_ = checkpoint_->version;
    tickets_->resume();
    changed();
  }
  tryCommit(checkpoint_->version, now);
}

// So many workers' scores make one of this version.
int Coordinator::scorers(std::int64_t version) const {
  if (tickets_) return 1;
  return plan_.backup_workers > 0 && version < steps_ ? 1 : workers();
}

}  // namespace trainyard::runtime
