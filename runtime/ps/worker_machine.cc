#include "runtime/ps/worker_machine.h"

#include <algorithm>

#include "base/core/check.h"
#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/coordinator/epoch_plan.h"

namespace trainyard::runtime::ps {
namespace {

constexpr std::size_t kMaxUnseenParts = 16;

bool newer(const v1::View& a, const v1::View& b) {
  const auto key = [](const v1::View& v) {
    return std::tuple(v.coordinator().created(), v.coordinator().start(), v.sequence());
  };
  return key(a) > key(b);
}

}  // namespace

WorkerMachine::WorkerMachine(WorkerConfig config)
    : config_(std::move(config)), chunks_(config_.ps_of_chunk.size()) {
  const int servers =
      config_.ps_of_chunk.empty()
          ? 0
          : *std::max_element(config_.ps_of_chunk.begin(), config_.ps_of_chunk.end()) + 1;
  flying_.assign(static_cast<std::size_t>(servers), 0);
  std::vector<std::size_t> held(static_cast<std::size_t>(servers), 0);
  for (const int ps : config_.ps_of_chunk) ++held[static_cast<std::size_t>(ps)];
  for (const std::size_t chunks : held) receipts_.push_back(chunks > config_.window);
}

bool WorkerMachine::active() const {
  return has_view_ && epoch_.epoch() == view_.epoch().epoch() &&
         (view_.phase() == v1::PHASE_ACTIVE || view_.phase() == v1::PHASE_STOPPING);
}

bool WorkerMachine::transferring() const {
  return activity_ == Activity::kPulling || activity_ == Activity::kStepping;
}

bool WorkerMachine::over() const {
  return has_view_ && (view_.phase() == v1::PHASE_DONE || view_.phase() == v1::PHASE_STOPPED ||
                       view_.phase() == v1::PHASE_FAILED);
}

// The version that a step of the other ranks leads to is waited for.
bool WorkerMachine::standsBy() const {
  return activity_ == Activity::kStepping && step_state_ == StepState::kNone;
}

// Whether the step that follows cannot be complete without this rank.
bool WorkerMachine::takesPart() const {
  return version_ >= plan_.steps || plan_.shareOf(version_, rank_).count > 0;
}

void WorkerMachine::onView(const v1::View& view) {
  if (has_view_ && !newer(view, view_)) return;
  const v1::Phase before = has_view_ ? view_.phase() : v1::PHASE_UNSPECIFIED;
  view_ = view;
  has_view_ = true;
  while (!parts_.empty() && view.evaluation().samples() > 0 &&
         parts_.front().version() <= view.evaluation().version()) {
    parts_.pop_front();
  }
  if (view.epoch().epoch() > sealed_) {
    sealed_ = view.epoch().epoch();
    urgent_ = true;
  }
  const bool running = view.phase() == v1::PHASE_ACTIVE || view.phase() == v1::PHASE_STOPPING;
  if (view.phase() != before && view.phase() == v1::PHASE_STOPPING) urgent_ = true;
  if (over() && before != view.phase()) urgent_ = true;
  if (running && view.epoch().epoch() > epoch_.epoch()) adopt(view);
  // Others have stopped at stop_at: the step that starts there will never be complete.
  const bool cannot_finish =
      (activity_ == Activity::kStepping &&
       ((view.phase() == v1::PHASE_STOPPING && view.stop_at() >= 0 && version_ >= view.stop_at()) ||
        over())) ||
      (pulls_outcome_ && over());
  if (cannot_finish) {
    if (!standsBy()) step_state_ = StepState::kAbandoned;
    pulls_outcome_ = false;
    activity_ = Activity::kReady;
    urgent_ = true;
  }
}

void WorkerMachine::adopt(const v1::View& view) {
  const int former_rank = rank_;
  const bool stands_by = standsBy();
  epoch_ = view.epoch();
  plan_ = planOf(epoch_);
  rank_ = -1;
  servers_.clear();
  for (const v1::EpochMember& member : epoch_.members()) {
    if (member.id().role() == v1::ROLE_WORKER) {
      if (member.id().index() == config_.index) rank_ = static_cast<int>(member.rank());
    } else {
      servers_.resize(std::max<std::size_t>(servers_.size(), member.id().index() + 1));
      servers_[member.id().index()] = member.incarnation();
    }
  }
  // Nothing that was sent under the former epoch will be answered.
  std::fill(flying_.begin(), flying_.end(), 0);
  for (ChunkTask& task : chunks_) task.attempt = next_attempt_++;
  if (rank_ < 0) {
    activity_ = Activity::kWaiting;
    if (stands_by) version_ = -1;
    return;
  }
  const bool kept = !epoch_.fresh() && epoch_.restore_manifest().empty();
  const bool pending = step_state_ == StepState::kPending;
  const bool in_step = pending || stands_by;
  const bool may_go_on = kept && in_step && rank_ == former_rank;
  if (may_go_on && !pulls_outcome_ && step_ == epoch_.first_step() &&
      plan_.shareOf(step_, rank_) == share_) {
    resumeStep();
    return;
  }
  // All of the step's gradients have arrived, only answers are missing: it has been taken.
  const std::int64_t outcome = pulls_outcome_ ? step_ : step_ + 1;
  pulls_outcome_ = may_go_on && pending && loss_ready_ && outcome == epoch_.first_step();
  if (pending && !pulls_outcome_) step_state_ = StepState::kAbandoned;
  // version_ is set only while a complete version is in place and no pull or step has touched it.
  if (kept && !in_step && version_ == epoch_.first_step()) {
    activity_ = Activity::kReady;
  } else {
    startPull(epoch_.first_step());
  }
}

// The gradients of the interrupted step go out again, except to chunks that are complete already.
void WorkerMachine::resumeStep() {
  activity_ = Activity::kStepping;
  for (std::uint32_t id = 0; id < chunks_.size(); ++id) {
    ChunkTask& task = chunks_[id];
    if (task.phase == ChunkPhase::kDone) continue;
    if (task.phase == ChunkPhase::kStoring) {
      task.again = true;
      continue;
    }
    task.phase = ChunkPhase::kIdle;
    queueIfReady(id);
  }
}

void WorkerMachine::startPull(std::int64_t version) {
  activity_ = Activity::kPulling;
  version_ = -1;
  step_ = version;  // what the pull asks for
  done_ = 0;
  for (ChunkTask& task : chunks_) {
    task.gradient = false;
    if (task.phase == ChunkPhase::kStoring) {
      task.again = true;
    } else {
      queue(task, TimePoint{});
    }
  }
  if (chunks_.empty()) chunkDone();
}

void WorkerMachine::queue(ChunkTask& task, TimePoint not_before) {
  task.phase = ChunkPhase::kQueued;
  task.not_before = not_before;
}

void WorkerMachine::queueIfReady(std::uint32_t chunk) {
  ChunkTask& task = chunks_[chunk];
  const bool carries_loss = chunk + 1 == chunks_.size();
  if (task.phase == ChunkPhase::kIdle && task.gradient && (!carries_loss || loss_ready_)) {
    queue(task, TimePoint{});
  }
}

std::vector<Send> WorkerMachine::takeSends(TimePoint now) {
  std::vector<Send> sends;
  const bool pulling = activity_ == Activity::kPulling;
  if ((!pulling && activity_ != Activity::kStepping) || !active() || sealed_ > epoch_.epoch()) {
    return sends;
  }
  for (std::uint32_t id = 0; id < chunks_.size(); ++id) {
    ChunkTask& task = chunks_[id];
    if (task.phase != ChunkPhase::kQueued || task.not_before > now) continue;
    const int ps = config_.ps_of_chunk[id];
    if (flying_[static_cast<std::size_t>(ps)] >= config_.window) continue;
    if (static_cast<std::size_t>(ps) >= servers_.size()) continue;
    ++flying_[static_cast<std::size_t>(ps)];
    task.phase = ChunkPhase::kFlying;
    task.attempt = next_attempt_++;
    Send send;
    send.chunk = id;
    send.ps = ps;
    send.attempt = task.attempt;
    send.with_payload = !pulling && !standsBy();
    send.header.set_protocol(1);
    send.header.set_job_uid(config_.job_uid);
    send.header.set_epoch(epoch_.epoch());
    *send.header.mutable_server() = servers_[static_cast<std::size_t>(ps)];
    send.header.set_worker(config_.index);
    *send.header.mutable_worker_incarnation() = config_.self;
    send.header.set_rank(static_cast<std::uint32_t>(rank_));
    send.header.set_chunk(id);
    send.header.set_step(step_);
    send.header.set_pull_only(pulling);
    send.header.set_receipt(receipts_[static_cast<std::size_t>(ps)]);
    if (!pulling) {
      send.header.set_samples(static_cast<std::uint32_t>(share_.count));
      if (id + 1 == chunks_.size()) send.header.set_loss_sum(own_loss_sum_);
    }
    sends.push_back(std::move(send));
  }
  return sends;
}

std::optional<TimePoint> WorkerMachine::wakeAt() const {
  std::optional<TimePoint> earliest;
  for (const ChunkTask& task : chunks_) {
    if (task.phase != ChunkPhase::kQueued || task.not_before == TimePoint{}) continue;
    if (!earliest || task.not_before < *earliest) earliest = task.not_before;
  }
  return earliest;
}

void WorkerMachine::onReceived(std::uint32_t chunk, std::uint64_t attempt) {
  ChunkTask& task = chunks_[chunk];
  if (task.attempt != attempt || task.phase != ChunkPhase::kFlying) return;
  task.phase = ChunkPhase::kParked;
  --flying_[static_cast<std::size_t>(config_.ps_of_chunk[chunk])];
}

bool WorkerMachine::onReply(std::uint32_t chunk, std::uint64_t attempt, const Status& transport,
                            const v1::ChunkReplyHeader& header, TimePoint now) {
  ChunkTask& task = chunks_[chunk];
  if (task.attempt != attempt) return false;
  onReceived(chunk, attempt);
  if (task.phase != ChunkPhase::kParked) return false;
  if (!transferring()) {  // the step was abandoned
    task.phase = ChunkPhase::kIdle;
    return false;
  }
  const std::int64_t wanted = activity_ == Activity::kPulling ? step_ : step_ + 1;
  if (transport.ok() && header.code() == v1::CHUNK_OK && header.version() == wanted) {
    task.phase = ChunkPhase::kStoring;
    const bool outcome = activity_ == Activity::kStepping || pulls_outcome_;
    if (outcome && chunk + 1 == chunks_.size()) {
      // A server that has loaded the version since knows neither; the loss of this rank's own
      // samples then stands for that of all.
      step_loss_ = header.samples() > 0 ? header.loss_sum() / static_cast<double>(header.samples())
                                        : own_loss_sum_ / std::max(share_.count, 1);
      gradient_norm_.reset();
      if (header.has_gradient_norm()) gradient_norm_ = header.gradient_norm();
    }
    return true;
  }
  last_problem_ =
      fmt::format("ps-{} step {} chunk {}: {}", config_.ps_of_chunk[chunk], step_, chunk,
                  transport.ok() ? header.message() : fromAbsl(transport.message()));
  // NOT_READY was already waited for; everything else may pass: a server that starts again, a view
  // that this worker or the server has not seen yet.
  const bool at_once = transport.ok() && header.code() == v1::CHUNK_NOT_READY;
  queue(task, at_once ? TimePoint{} : now + config_.retry_delay);
  return false;
}

void WorkerMachine::onStored(std::uint32_t chunk, std::uint64_t attempt) {
  ChunkTask& task = chunks_[chunk];
  TY_CHECK(task.phase == ChunkPhase::kStoring, "a chunk is stored once");
  if (task.again || task.attempt != attempt || !transferring()) {
    // During the copy a new epoch began and wants this chunk anew, or the step was abandoned.
    task.again = false;
    task.phase = ChunkPhase::kIdle;
    if (activity_ == Activity::kPulling) {
      queue(task, TimePoint{});
    } else if (activity_ == Activity::kStepping) {
      queueIfReady(chunk);
    }
    return;
  }
  task.phase = ChunkPhase::kDone;
  ++done_;
  if (done_ == chunks_.size()) chunkDone();
}

// All chunks of the wanted version are in place.
void WorkerMachine::chunkDone() {
  if (activity_ == Activity::kPulling) {
    version_ = step_;
  } else {
    version_ = step_ + 1;
  }
  if (activity_ == Activity::kStepping || std::exchange(pulls_outcome_, false)) {
    loss_step_ = version_ - 1;
    if (step_state_ == StepState::kPending) step_state_ = StepState::kComplete;
  }
  activity_ = Activity::kReady;
  if (view_.phase() == v1::PHASE_STOPPING) urgent_ = true;
}

bool WorkerMachine::evaluationDue() const {
  if (!config_.evaluates || version_ <= 0) return false;
  const bool due = version_ == plan_.steps ||
                   (config_.evaluate_every > 0 && version_ % config_.evaluate_every == 0);
  if (!due) return false;
  const bool known = view_.evaluation().samples() > 0 && view_.evaluation().version() >= version_;
  const bool own = evaluated_version_ == version_ && evaluated_epoch_ == epoch_.epoch();
  return !known && !own;
}

StatusOr<std::optional<Turn>> WorkerMachine::turn() {
  if (!has_view_) return std::optional<Turn>();
  if (!view_.refusal().empty())
    return withClass(absl::InvalidArgumentError(view_.refusal()), FailureClass::kPermanent);
  Turn turn;
  turn.epoch = epoch_.epoch();
  turn.step = version_;
  if (view_.phase() == v1::PHASE_FAILED) return absl::FailedPreconditionError(view_.failure());
  if (view_.phase() == v1::PHASE_DONE || view_.phase() == v1::PHASE_STOPPED) {
    turn.kind = view_.phase() == v1::PHASE_DONE ? Turn::Kind::kDone : Turn::Kind::kStopped;
    turn.step = view_.progress();
    return std::optional<Turn>(turn);
  }
  if (activity_ != Activity::kReady || step_state_ != StepState::kNone || !active() ||
      sealed_ > epoch_.epoch()) {
    return std::optional<Turn>();
  }
  turn.rank = rank_;
  turn.ranks = plan_.ranks;
  const bool stopping = view_.phase() == v1::PHASE_STOPPING;
  if (stopping && (takesPart() || view_.stop_at() >= 0)) return std::optional<Turn>();
  if (!stopping && evaluationDue()) {
    turn.kind = Turn::Kind::kEvaluate;
    turn_epoch_ = epoch_.epoch();
    return std::optional<Turn>(turn);
  }
  if (version_ >= plan_.steps) return std::optional<Turn>();  // waits for DONE
  startStep();
  if (standsBy()) return std::optional<Turn>();
  turn.kind = Turn::Kind::kTrain;
  turn.samples = share_.count;
  turn.step_samples = plan_.samplesOf(step_);
  turn.first_position = share_.first;
  turn_epoch_ = epoch_.epoch();
  return std::optional<Turn>(turn);
}

void WorkerMachine::startStep() {
  step_ = version_;
  share_ = plan_.shareOf(step_, rank_);
  const bool stands_by = share_.count == 0;
  activity_ = Activity::kStepping;
  step_state_ = stands_by ? StepState::kNone : StepState::kPending;
  loss_ready_ = stands_by;
  own_loss_sum_ = 0;
  done_ = 0;
  for (std::uint32_t id = 0; id < chunks_.size(); ++id) {
    chunks_[id].phase = ChunkPhase::kIdle;
    chunks_[id].gradient = stands_by;
    if (stands_by) queueIfReady(id);
  }
}

void WorkerMachine::gradientReady(std::uint32_t chunk) {
  if (step_state_ != StepState::kPending || activity_ != Activity::kStepping) return;
  chunks_[chunk].gradient = true;
  queueIfReady(chunk);
}

void WorkerMachine::lossReady(double loss_sum) {
  if (abort_) return;  // the step must not become complete
  if (step_state_ != StepState::kPending || activity_ != Activity::kStepping) return;
  own_loss_sum_ = loss_sum;
  loss_ready_ = true;
  if (!chunks_.empty()) queueIfReady(static_cast<std::uint32_t>(chunks_.size() - 1));
}

double WorkerMachine::endStep() {
  step_state_ = StepState::kNone;
  if (view_.phase() == v1::PHASE_STOPPING) urgent_ = true;
  return step_loss_;
}

bool WorkerMachine::interrupted() const {
  return turn_epoch_ != sealed_ || over() || view_.phase() == v1::PHASE_STOPPING;
}

void WorkerMachine::evaluated(std::int64_t hits, std::int64_t samples, double loss_sum) {
  if (interrupted()) return;
  evaluated_version_ = version_;
  evaluated_epoch_ = epoch_.epoch();
  v1::EvaluationPart part;
  part.set_epoch(epoch_.epoch());
  part.set_version(version_);
  part.set_rank(static_cast<std::uint32_t>(std::max(rank_, 0)));
  part.set_hits(hits);
  part.set_samples(samples);
  part.set_loss_sum(loss_sum);
  parts_.push_back(part);
  if (parts_.size() > kMaxUnseenParts) parts_.pop_front();
  urgent_ = true;
}

void WorkerMachine::abort(std::int64_t step, std::string variable, std::string reason) {
  abort_.emplace();
  abort_->set_step(step);
  abort_->set_variable(std::move(variable));
  abort_->set_reason(std::move(reason));
  urgent_ = true;
}

void WorkerMachine::fillReport(v1::MemberReport& report) const {
  if (has_view_) {
    report.set_seen_view(view_.sequence());
    *report.mutable_seen_coordinator() = view_.coordinator();
  }
  report.set_highest_epoch(sealed_);
  report.set_sealed_epoch(sealed_);
  v1::WorkerState* worker = report.mutable_worker();
  worker->set_version(version_);
  worker->set_epoch(epoch_.epoch());
  worker->set_idle(has_view_ && view_.phase() == v1::PHASE_STOPPING &&
                   activity_ != Activity::kStepping && activity_ != Activity::kPulling &&
                   step_state_ == StepState::kNone && takesPart());
  for (const v1::EvaluationPart& part : parts_) *worker->add_evaluations() = part;
  if (loss_step_ >= 0) {
    worker->set_has_loss(true);
    worker->set_loss(step_loss_);
    worker->set_loss_step(loss_step_);
  }
  if (abort_) *report.mutable_abort() = *abort_;
  report.set_leaving(over() && step_state_ == StepState::kNone);
}

bool WorkerMachine::takeUrgent() {
  return std::exchange(urgent_, false);
}

}  // namespace trainyard::runtime::ps
