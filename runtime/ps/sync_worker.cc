#include "runtime/ps/sync_worker.h"

#include <algorithm>
#include <utility>

#include "base/core/check.h"

namespace trainyard::runtime::ps {

bool SyncWorker::transferring() const {
  return activity_ == Activity::kPulling || activity_ == Activity::kStepping;
}

// Whether the step that follows cannot be complete without this rank.
bool SyncWorker::takesPart() const {
  return version_ >= plan_.steps || plan_.shareOf(version_, rank_).count > 0;
}

// The loss travels with the last chunk. With backup workers nothing leaves before its place is
// known.
bool SyncWorker::holdsBack(std::uint32_t chunk) const {
  if (withBackups() && !standing_ && place_ < 0) return true;
  return carriesLoss(chunk) && !loss_ready_;
}

void SyncWorker::onView(const v1::View& view) {
  if (!takeView(view)) return;
  const bool running = view.phase() == v1::PHASE_ACTIVE || stopping();
  if (running && !view.left() && view.epoch().epoch() > epoch_.epoch()) adopt(view);
  // Others have stopped at stop_at: the step that starts there will never be complete.
  const bool cannot_finish =
      (activity_ == Activity::kStepping &&
       ((stopping() && view.stop_at() >= 0 && version_ >= view.stop_at()) || over())) ||
      (pulls_outcome_ && over());
  if (!cannot_finish) return;
  if (step_state_ == StepState::kPending) step_state_ = StepState::kAbandoned;
  standing_ = false;
  pulls_outcome_ = false;
  dropAsk();
  activity_ = Activity::kReady;
  urgent_ = true;
}

void SyncWorker::adopt(const v1::View& view) {
  const int former_rank = rank_;
  const StepPlan::Share former_share =
      rank_ >= 0 && version_ >= 0 ? plan_.shareOf(version_, rank_) : StepPlan::Share{};
  const bool stands_by = activity_ == Activity::kStepping && standing_;
  enterEpoch(view);
  if (rank_ < 0) {
    activity_ = Activity::kWaiting;
    if (stands_by) version_ = -1;
    return;
  }
  const bool kept = !epoch_.fresh() && epoch_.restore_manifest().empty();
  const bool pending = step_state_ == StepState::kPending;
  const bool in_step = pending || stands_by;
  const bool may_go_on = kept && in_step && rank_ == former_rank;
  // The job may end before the step now: then nobody takes it any more.
  if (may_go_on && !pulls_outcome_ && step_ == epoch_.first_step() && step_ < plan_.steps &&
      (withBackups() || plan_.shareOf(step_, rank_) == share_)) {
    resumeStep();
    return;
  }
  // All of the step's gradients have arrived, only answers are missing: it has been taken.
  const std::int64_t outcome = pulls_outcome_ ? step_ : step_ + 1;
  const bool had_place = !withBackups() || place_ >= 0;
  pulls_outcome_ =
      may_go_on && pending && loss_ready_ && had_place && outcome == epoch_.first_step();
  if (pending && !pulls_outcome_) step_state_ = StepState::kAbandoned;
  // version_ is set only while a complete version is in place and no pull or step has touched it.
  const bool rows_fit =
      !hasParts() || (version_ >= 0 && plan_.shareOf(version_, rank_) == former_share);
  if (kept && !in_step && version_ == epoch_.first_step() && rows_fit) {
    activity_ = Activity::kReady;
  } else {
    startPull(epoch_.first_step());
  }
}

// The gradients of the interrupted step go out again, except to chunks that are complete already.
void SyncWorker::resumeStep() {
  activity_ = Activity::kStepping;
  transfer_.resume();
  // The next step's samples may be others now.
  for (std::uint32_t id = chunks(); id < transfer_.size(); ++id) transfer_.redo(id);
  if (withBackups() && !standing_) {
    place_ = -1;  // places are given anew
    if (loss_ready_) askForPlace(true);
    return;
  }
  for (std::uint32_t id = 0; id < transfer_.size(); ++id) {
    if (!holdsBack(id)) transfer_.queueIfReady(id);
  }
}

void SyncWorker::startPull(std::int64_t version) {
  activity_ = Activity::kPulling;
  standing_ = false;
  version_ = -1;
  step_ = version;  // what the pull asks for
  transfer_.begin(true);
  if (transfer_.size() == 0) chunkDone();
}

// Waits for the version that `step` leads to.
void SyncWorker::standBy(std::int64_t step) {
  activity_ = Activity::kStepping;
  standing_ = true;
  step_ = step;
  loss_ready_ = true;
  own_loss_ = {};
  transfer_.begin(true);
  for (std::uint32_t id = 0; id < transfer_.size(); ++id) transfer_.ready(id, true);
}

std::vector<Send> SyncWorker::takeSends(TimePoint now) {
  if (!transferring() || !active()) return {};
  const bool pulling = activity_ == Activity::kPulling;
  std::vector<Send> sends = sendsOf(now);
  for (Send& send : sends) {
    send.with_payload = !pulling && !standing_;
    send.header.set_pull_only(pulling);
    if (isPart(send.chunk)) {
      send.rows = plan_.shareOf(pulling ? step_ : step_ + 1, rank_);
      send.header.set_rank(static_cast<std::uint32_t>(rank_));
    }
    if (pulling) {
      send.header.set_version(step_);
      continue;
    }
    send.header.set_step(step_);
    send.header.set_rank(static_cast<std::uint32_t>(rank_));
    // A step's gradients are told apart by their places; who stands by has none.
    if (withBackups() && !standing_) send.header.set_place(static_cast<std::uint32_t>(place_));
    send.header.set_samples(standing_ ? 0 : static_cast<std::uint32_t>(share_.count));
    if (carriesLoss(send.chunk)) writeLoss(send.header);
  }
  return sends;
}

StatusOr<std::optional<Send>> SyncWorker::readRows(std::size_t part) {
  const bool trains = step_state_ == StepState::kPending;
  const bool evaluates = step_state_ == StepState::kNone && activity_ == Activity::kReady &&
                         active() && !interrupted();
  if (!trains && !evaluates) return absl::CancelledError("the turn is void");
  // Between two epochs it is not known yet whether the step goes on.
  const bool is_now = !trains || (activity_ == Activity::kStepping && active());
  std::optional<Send> send = is_now ? readingOf(part) : std::nullopt;
  if (!send) return send;
  send->header.set_rank(static_cast<std::uint32_t>(rank_));
  send->header.set_version(version_);
  return send;
}

// Others have made the step, and have begun the next one.
void SyncWorker::onRowsGone() {
  const bool trains = step_state_ == StepState::kPending && activity_ == Activity::kStepping;
  if (withBackups() && trains && !asking()) askForPlace(false);
}

bool SyncWorker::onReply(std::uint32_t chunk, std::uint64_t attempt, const Status& transport,
                         const v1::ChunkReplyHeader& header, TimePoint now) {
  if (!transfer_.onReply(chunk, attempt)) return false;
  if (!transferring()) {  // the step was abandoned
    transfer_.drop(chunk);
    return false;
  }
  const std::int64_t wanted = activity_ == Activity::kPulling ? step_ : step_ + 1;
  if (transport.ok() && header.code() == v1::CHUNK_OK && header.version() == wanted) {
    transfer_.storing(chunk);
    const bool outcome = activity_ == Activity::kStepping || pulls_outcome_;
    if (outcome && carriesLoss(chunk)) {
      // A server that has loaded the version since knows neither; the loss of this rank's own
      // samples then stands for that of all.
      if (header.samples() > 0) {
        const auto samples = static_cast<double>(header.samples());
        step_loss_ = header.loss_sum() / samples;
        step_accuracy_ = accuracyOf(header.has_hits() ? header.hits() : kNotCounted, samples);
      } else {
        takeOwnLoss(share_.count);
      }
      gradient_norm_.reset();
      if (header.has_gradient_norm()) gradient_norm_ = header.gradient_norm();
    }
    return true;
  }
  // The others, who need not wait for this worker, have gone on beyond the version that it wants.
  const bool passed = transport.ok() && header.code() == v1::CHUNK_GONE && withBackups();
  sendAgain(chunk, step_, transport, header, now);
  if (passed && !asking()) askForPlace(false);
  return false;
}

void SyncWorker::onStored(std::uint32_t chunk, std::uint64_t attempt) {
  if (transfer_.onStored(chunk, attempt, transferring())) {
    if (transfer_.allDone()) chunkDone();
    return;
  }
  // During the copy a new epoch began and wants this chunk anew, or the step was abandoned.
  if (activity_ == Activity::kPulling) {
    transfer_.again(chunk, TimePoint{});
  } else if (activity_ == Activity::kStepping && !holdsBack(chunk)) {
    transfer_.queueIfReady(chunk);
  }
}

void SyncWorker::onCut(std::uint32_t chunk, std::uint64_t, const Status& transport, TimePoint now) {
  transfer_.onCut(chunk);
  // Where the chunk has to wait for something else, that queues it.
  if (activity_ == Activity::kPulling ||
      (activity_ == Activity::kStepping && !holdsBack(chunk) && transfer_.isReady(chunk))) {
    sendAgain(chunk, step_, transport, {}, now);
  }
}

// All chunks of the wanted version are in place.
void SyncWorker::chunkDone() {
  const bool stepped = activity_ == Activity::kStepping;
  version_ = stepped ? step_ + 1 : step_;
  if (stepped || std::exchange(pulls_outcome_, false)) {
    loss_step_ = version_ - 1;
    if (step_state_ == StepState::kPending) step_state_ = StepState::kComplete;
  }
  standing_ = false;
  dropAsk();
  activity_ = Activity::kReady;
  if (resting()) urgent_ = true;
}

void SyncWorker::askForPlace(bool with_gradient) {
  v1::TakeRequest request;
  request.set_step(step_);
  request.set_with_gradient(with_gradient);
  ask(std::move(request));
}

void SyncWorker::onTake(const v1::TakeRequest& request, const Status& transport,
                        const v1::TakeReply& reply, TimePoint now) {
  if (!closeAsk(request, transport, reply, now)) return;
  if (activity_ == Activity::kReady) {
    if (reply.code() == v1::TAKE_SKIP && reply.newest() > version_) standBy(reply.newest() - 1);
    return;
  }
  if (!transferring()) return;
  if (reply.code() == v1::TAKE_OK && reply.has_place() && !standing_) {
    place_ = static_cast<int>(reply.place());
    transfer_.queueAllReady();
  } else if (reply.code() == v1::TAKE_SKIP) {
    if (step_state_ == StepState::kPending) leaveStep();
    standBy(reply.newest() - 1);
  }
}

// All are to rest at one version, which the others may have reached without this worker.
void SyncWorker::catchUp() {
  if (!withBackups() || asking() || rests_since_ == view_.sequence()) return;
  rests_since_ = view_.sequence();
  step_ = version_;
  askForPlace(false);
}

// The step is over for this worker: without its gradient, or with it but too long ago to see the
// outcome.
void SyncWorker::leaveStep() {
  const bool taken = place_ >= 0 || std::exchange(pulls_outcome_, false);
  step_state_ = taken ? StepState::kComplete : StepState::kAbandoned;
  too_late_ = !taken;
  if (!taken) return;
  loss_step_ = step_;
  takeOwnLoss(share_.count);
}

// With backup workers nobody is sure to see a certain version before the last.
bool SyncWorker::chiefScores() const {
  return withBackups() && version_ < plan_.steps;
}

bool SyncWorker::evaluationDue() const {
  if (!config_.evaluates || version_ <= 0) return false;
  const std::int64_t every = config_.evaluate_every;
  bool due = version_ == plan_.steps || (every > 0 && version_ % every == 0);
  if (chiefScores()) {
    const std::int64_t scored = std::max(evaluated_version_, view_.evaluation().version());
    due = every > 0 && rank_ == 0 && version_ / every > scored / every;
  }
  return due && !evaluationDone();
}

StatusOr<std::optional<Turn>> SyncWorker::turn() {
  StatusOr<std::optional<Turn>> end = endTurn();
  // The job may be over before the last step's answers are here.
  if (end.ok() && end->has_value() && !withBackups() && (*end)->kind != Turn::Kind::kLeft)
    (*end)->taken = (*end)->step;
  if (!end.ok() || end->has_value()) return end;
  if (activity_ != Activity::kReady || step_state_ != StepState::kNone || !active())
    return std::optional<Turn>();
  Turn turn;
  turn.epoch = epoch_.epoch();
  turn.step = version_;
  turn.rank = rank_;
  turn.ranks = plan_.ranks;
  const bool stops = stopping() && view_.stop_at() >= 0;
  if (resting()) catchUp();
  if (resting() && (takesPart() || stops)) return std::optional<Turn>();
  if (!resting() && evaluationDue()) {
    turn.kind = Turn::Kind::kEvaluate;
    if (chiefScores()) turn.ranks = 1;
    turn_epoch_ = epoch_.epoch();
    return std::optional<Turn>(turn);
  }
  if (version_ >= plan_.steps) return std::optional<Turn>();  // waits for DONE
  startStep();
  if (standing_) return std::optional<Turn>();
  turn.kind = Turn::Kind::kTrain;
  turn.samples = share_.count;
  turn.step_samples = plan_.samplesOf(step_);
  turn.first_position = share_.first;
  turn_epoch_ = epoch_.epoch();
  return std::optional<Turn>(turn);
}

void SyncWorker::startStep() {
  share_ = plan_.shareOf(version_, rank_);
  if (share_.count == 0) return standBy(version_);
  step_ = version_;
  place_ = -1;
  activity_ = Activity::kStepping;
  step_state_ = StepState::kPending;
  loss_ready_ = false;
  own_loss_ = {};
  transfer_.begin(false);
}

void SyncWorker::gradientReady(std::uint32_t chunk) {
  if (step_state_ != StepState::kPending || activity_ != Activity::kStepping) return;
  transfer_.ready(chunk, holdsBack(chunk));
}

void SyncWorker::lossReady(const BatchLoss& loss) {
  if (abort_) return;  // the step must not become complete
  if (step_state_ != StepState::kPending || activity_ != Activity::kStepping) return;
  own_loss_ = loss;
  loss_ready_ = true;
  if (withBackups()) return askForPlace(true);
  if (chunks() > 0) transfer_.queueIfReady(chunks() - 1);
}

WorkerMachine::StepEnd SyncWorker::endStep() {
  step_state_ = StepState::kNone;
  if (resting()) urgent_ = true;
  return {step_loss_, loss_step_, step_accuracy_, gradient_norm_, std::exchange(too_late_, false)};
}

void SyncWorker::fillReport(v1::MemberReport& report) const {
  fillCommon(report);
  v1::WorkerState* worker = report.mutable_worker();
  worker->set_idle(has_view_ && resting() && !transferring() && step_state_ == StepState::kNone &&
                   takesPart());
}

}  // namespace trainyard::runtime::ps
