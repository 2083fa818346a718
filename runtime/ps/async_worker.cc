#include "runtime/ps/async_worker.h"

#include <algorithm>
#include <utility>

namespace trainyard::runtime::ps {

// The version that so many pushes make; the last may lack some.
std::int64_t AsyncWorker::versionAfter(std::int64_t pushes) const {
  return std::min(plan_.steps, (pushes + config_.aggregate - 1) / config_.aggregate);
}

void AsyncWorker::onView(const v1::View& view) {
  if (!takeView(view)) return;
  const bool running = view.phase() == v1::PHASE_ACTIVE || stopping();
  if (running && !view.left() && view.epoch().epoch() > epoch_.epoch()) adopt();
  if (over()) abandon();
  if (view.draining() && !ticket_) urgent_ = true;  // what is finished is news now
  if (lastVersionDue() && activity_ == Activity::kIdle) startPull(true);
}

// What is computed will not be pushed any more.
void AsyncWorker::abandon() {
  if (step_state_ == StepState::kPending) step_state_ = StepState::kAbandoned;
  ticket_.reset();
  carried_ = false;
  lease_.reset();
  held_rows_ = {};
  dropAsk();
  if (activity_ == Activity::kComputing) activity_ = Activity::kIdle;
  urgent_ = true;
}

void AsyncWorker::adopt() {
  const std::int64_t former = epoch_.epoch();
  enterEpoch(view_);
  finished_ = 0;
  carried_ = ticket_.has_value();
  evaluating_ = false;
  no_more_ = false;
  // What was loaded meanwhile has made void what this worker holds, though it has missed that.
  const bool kept =
      !epoch_.fresh() && epoch_.restore_manifest().empty() && former >= epoch_.lineage();
  if (rank_ < 0 || !kept) {
    abandon();
    evaluated_version_ = -1;
    version_ = -1;
    activity_ = Activity::kWaiting;
    if (rank_ >= 0) startPull(true);
    return;
  }
  if (activity_ == Activity::kComputing) {
    transfer_.resume();
    if (ticket_) queueReady();
  } else if (activity_ != Activity::kIdle) {
    startPull(true);
  }
}

// The loss travels with the last chunk.
void AsyncWorker::queueReady() {
  for (std::uint32_t id = 0; id < transfer_.size(); ++id) {
    if (!carriesLoss(id) || loss_ready_) transfer_.queueIfReady(id);
  }
}

StepPlan::Share AsyncWorker::leased() const {
  return lease_ ? StepPlan::Share{lease_->first(), lease_->samples()} : StepPlan::Share{};
}

void AsyncWorker::wantRows() {
  wanted_rows_ = leased();
  ++rows_wish_;
}

// Rows of what is leased are pulled too; without `weights` only they.
void AsyncWorker::startPull(bool weights) {
  activity_ = Activity::kPulling;
  pulled_version_ = epoch_.first_step();
  wantRows();
  transfer_.begin(true);
  for (std::uint32_t id = 0; id < transfer_.size(); ++id) {
    if (isPart(id) ? wanted_rows_.count == 0 : !weights) transfer_.skip(id);
  }
  if (weights) stale_ = false;
  if (transfer_.allDone()) pulled();
}

void AsyncWorker::pulled() {
  activity_ = Activity::kIdle;
  held_rows_ = wanted_rows_;
  // All pushes are in: what was pulled is the last version, whatever its chunks count.
  version_ = lastVersionDue() ? plan_.steps : std::max(version_, pulled_version_);
}

// All pushes of the job are finished, and this worker is to score them.
bool AsyncWorker::lastVersionDue() const {
  return active() && rank_ == 0 && config_.evaluates && view_.progress() == plan_.steps &&
         version_ != plan_.steps;
}

std::vector<Send> AsyncWorker::takeSends(TimePoint now) {
  const bool pulling = activity_ == Activity::kPulling;
  if (!active()) return {};
  if (activity_ == Activity::kComputing && transfer_.anyReady() && !ticket_) askFor(true);
  if (activity_ == Activity::kIdle && step_state_ == StepState::kNone && !lease_) askFor(false);
  if (!pulling && !ticket_) return {};
  std::vector<Send> sends = sendsOf(now);
  for (Send& send : sends) {
    send.with_payload = !pulling;
    send.header.set_pull_only(pulling);
    if (isPart(send.chunk)) {
      send.rows = wanted_rows_;
      send.rows_wish = rows_wish_;
    }
    if (pulling) continue;
    send.header.set_step(*ticket_ / config_.aggregate);
    send.header.set_ticket(*ticket_);
    send.header.set_first(own_.first());
    send.header.set_push(push_);
    send.header.set_samples(static_cast<std::uint32_t>(own_.samples()));
    if (carriesLoss(send.chunk)) writeLoss(send.header);
  }
  return sends;
}

StatusOr<std::optional<Send>> AsyncWorker::readRows(std::size_t part) {
  const bool trains = step_state_ == StepState::kPending;
  const bool evaluates = step_state_ == StepState::kNone && active() && !interrupted();
  if (!trains && !evaluates) return absl::CancelledError("the turn is void");
  return active() ? readingOf(part) : std::nullopt;
}

// For samples for the next gradient, and for the ticket of the one in hand.
void AsyncWorker::askFor(bool ticket) {
  if (asking() || stopping()) return;
  if (ticket ? abort_.has_value() : no_more_ || evaluationDue()) return;
  v1::TakeRequest request;
  request.set_ticket(ticket);
  request.set_lease(true);
  request.set_finished(finished_);
  ask(std::move(request));
}

void AsyncWorker::onTake(const v1::TakeRequest& request, const Status& transport,
                         const v1::TakeReply& reply, TimePoint now) {
  if (!closeAsk(request, transport, reply, now)) return;
  if (reply.code() == v1::TAKE_OVER) {
    no_more_ = true;
    if (step_state_ == StepState::kPending) step_state_ = StepState::kAbandoned;
    if (activity_ == Activity::kComputing) activity_ = Activity::kIdle;
    return;
  }
  if (reply.has_lease()) lease_ = reply.lease();
  if (reply.has_ticket() && activity_ == Activity::kComputing) {
    ticket_ = reply.ticket();
    ++push_;
    wantRows();
    queueReady();
  } else if (reply.waited() && activity_ == Activity::kIdle) {
    stale_ = true;
  }
}

bool AsyncWorker::onReply(std::uint32_t chunk, std::uint64_t attempt, const Status& transport,
                          const v1::ChunkReplyHeader& header, TimePoint now) {
  if (!transfer_.onReply(chunk, attempt)) return false;
  if (activity_ != Activity::kPulling && !ticket_) {
    transfer_.drop(chunk);
    return false;
  }
  if (transport.ok() && header.code() == v1::CHUNK_OK) {
    transfer_.storing(chunk);
    pulled_version_ = std::max(pulled_version_, header.version());
    return true;
  }
  sendAgain(chunk, ticket_.value_or(-1), transport, header, now);
  return false;
}

void AsyncWorker::onStored(std::uint32_t chunk, std::uint64_t attempt) {
  const bool pulling = activity_ == Activity::kPulling;
  if (transfer_.onStored(chunk, attempt, pulling || ticket_.has_value())) {
    if (!transfer_.allDone()) return;
    if (pulling) {
      pulled();
    } else {
      pushed();
    }
    return;
  }
  if (pulling) {
    transfer_.again(chunk, TimePoint{});
  } else if (ticket_ && (!carriesLoss(chunk) || loss_ready_)) {
    transfer_.queueIfReady(chunk);
  }
}

void AsyncWorker::onCut(std::uint32_t chunk, std::uint64_t, const Status& transport,
                        TimePoint now) {
  transfer_.onCut(chunk);
  const bool pushing = ticket_ && (!carriesLoss(chunk) || loss_ready_);
  if (activity_ == Activity::kPulling || (pushing && transfer_.isReady(chunk)))
    sendAgain(chunk, ticket_.value_or(-1), transport, {}, now);
}

void AsyncWorker::pushed() {
  if (!std::exchange(carried_, false)) ++finished_;
  // Of the last version others may have pushes to come: only a pull after all of them shows it.
  version_ = std::max(version_, std::min(versionAfter(*ticket_ + 1), plan_.steps - 1));
  loss_step_ = *ticket_ / config_.aggregate;
  takeOwnLoss(own_.samples());
  ticket_.reset();
  held_rows_ = wanted_rows_;
  activity_ = Activity::kIdle;
  if (step_state_ == StepState::kPending) step_state_ = StepState::kComplete;
  if (view_.draining() || stopping()) urgent_ = true;
}

bool AsyncWorker::evaluationDue() const {
  if (!config_.evaluates || rank_ != 0 || version_ <= 0) return false;
  // The job ends with this score: a coordinator that has started again has not heard of it.
  if (version_ == plan_.steps) return view_.progress() == plan_.steps && !evaluationDone();
  const std::int64_t scored = std::max(evaluated_version_, view_.evaluation().version());
  const std::int64_t every = config_.evaluate_every;
  return every > 0 && version_ / every > scored / every;
}

StatusOr<std::optional<Turn>> AsyncWorker::turn() {
  StatusOr<std::optional<Turn>> end = endTurn();
  if (!end.ok() || end->has_value()) return end;
  if (activity_ != Activity::kIdle || step_state_ != StepState::kNone || !active() || stopping())
    return std::optional<Turn>();
  if (lastVersionDue() || (stale_ && lease_)) {
    startPull(true);
    return std::optional<Turn>();
  }
  Turn turn;
  turn.epoch = epoch_.epoch();
  turn.step = std::max<std::int64_t>(version_, 0);
  turn.rank = rank_;
  turn.ranks = plan_.ranks;
  turn_epoch_ = epoch_.epoch();
  if (evaluationDue()) {
    turn.kind = Turn::Kind::kEvaluate;
    turn.rank = 0;
    turn.ranks = 1;
    evaluating_ = true;
    urgent_ = true;
    return std::optional<Turn>(turn);
  }
  if (!lease_) return std::optional<Turn>();
  if (lacksRows()) {
    startPull(false);
    return std::optional<Turn>();
  }
  turn.kind = Turn::Kind::kTrain;
  own_ = *std::exchange(lease_, std::nullopt);
  turn.first_position = own_.first();
  turn.samples = own_.samples();
  turn.step_samples = std::int64_t{own_.samples()} * config_.aggregate;
  activity_ = Activity::kComputing;
  step_state_ = StepState::kPending;
  loss_ready_ = false;
  own_loss_ = {};
  transfer_.begin(false);
  return std::optional<Turn>(turn);
}

void AsyncWorker::gradientReady(std::uint32_t chunk) {
  if (step_state_ != StepState::kPending || activity_ != Activity::kComputing) return;
  transfer_.ready(chunk, !ticket_ || (carriesLoss(chunk) && !loss_ready_));
}

void AsyncWorker::lossReady(const BatchLoss& loss) {
  if (abort_) return;  // the push must not become complete
  if (step_state_ != StepState::kPending || activity_ != Activity::kComputing) return;
  own_loss_ = loss;
  loss_ready_ = true;
  if (ticket_ && chunks() > 0) transfer_.queueIfReady(chunks() - 1);
}

WorkerMachine::StepEnd AsyncWorker::endStep() {
  step_state_ = StepState::kNone;
  if (stopping()) urgent_ = true;
  return {step_loss_, loss_step_, step_accuracy_};
}

void AsyncWorker::evaluated(std::int64_t hits, std::int64_t samples, double loss_sum,
                            const ClickScores& clicks) {
  WorkerCore::evaluated(hits, samples, loss_sum, clicks);
  evaluating_ = false;
  urgent_ = true;
}

void AsyncWorker::fillReport(v1::MemberReport& report) const {
  fillCommon(report);
  v1::WorkerState* worker = report.mutable_worker();
  worker->set_finished(finished_);
  worker->set_evaluating(evaluating_);
  worker->set_pushing(ticket_.has_value());
  worker->set_ticket(ticket_.value_or(-1));
  if (ticket_) *worker->mutable_pushing_lease() = own_;
  if (lease_) {
    *worker->mutable_lease() = *lease_;
  } else if (activity_ == Activity::kComputing && !ticket_) {
    *worker->mutable_lease() = own_;
  }
}

}  // namespace trainyard::runtime::ps
