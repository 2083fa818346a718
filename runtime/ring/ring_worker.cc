#include "runtime/ring/ring_worker.h"

#include <algorithm>
#include <utility>

#include "base/core/check.h"
#include "fmt/format.h"
#include "runtime/coordinator/names.h"

namespace trainyard::runtime::ring {
namespace {

constexpr std::size_t kReportedFiles = 4;

bool isKept(const v1::EpochInfo& epoch) {
  return !epoch.fresh() && epoch.restore_manifest().empty();
}

}  // namespace

void RingWorker::onView(const v1::View& view) {
  if (!takeView(view)) return;
  const std::int64_t epoch = view.epoch().epoch();
  if (view.phase() == v1::PHASE_PREPARING && epoch == sealed_ && epoch > preparing_) {
    preparing_ = epoch;
    to_prepare_ = view.epoch();
  }
  const bool running = view.phase() == v1::PHASE_ACTIVE || stopping();
  const std::int64_t wanted = stopping() ? view.stop_at() : view.checkpoint_at();
  if (running && epoch == prepared_ && wanted >= 0) arm(wanted);
}

std::optional<v1::EpochInfo> RingWorker::takePrepare() {
  if (activity_ == Activity::kStepping || activity_ == Activity::kApplying) return std::nullopt;
  auto epoch = std::exchange(to_prepare_, std::nullopt);
  if (!epoch || epoch->epoch() != sealed_ || over()) return std::nullopt;
  const auto& members = epoch->members();
  const bool member = std::any_of(members.begin(), members.end(), [&](const v1::EpochMember& m) {
    return m.id().index() == config_.index;
  });
  if (member) activity_ = Activity::kWaiting;
  return member ? epoch : std::nullopt;
}

bool RingWorker::beginReceive(const v1::EpochInfo& epoch) {
  const bool has_it =
      isKept(epoch) && version_ == epoch.first_step() && epoch_.epoch() >= epoch.lineage();
  if (!has_it) version_ = -1;
  return !has_it;
}

// Also when a newer epoch has been announced meanwhile: the state is whole, and the next one may
// start from it.
void RingWorker::onPrepared(const v1::EpochInfo& epoch) {
  enterEpoch(epoch);
  version_ = epoch.first_step();
  prepared_ = epoch.epoch();
  activity_ = Activity::kReady;
  standing_ = false;
  problem_.clear();
  armed_.clear();
  copied_ = -1;
  missed_ = -1;
  if (epoch.fresh()) arm(epoch.first_step());
  const bool restored = !epoch.restore_manifest().empty();
  if (!restored || epoch.first_step() != plan_.steps) arm(plan_.steps);
  urgent_ = true;
}

void RingWorker::onProblem(const std::string& problem) {
  problem_ = problem;
  urgent_ = true;
}

void RingWorker::onFailure(std::int64_t epoch, const std::string& message) {
  if (cancelled(epoch)) return;
  failure_.set_epoch(epoch);
  failure_.set_message(message);
  activity_ = Activity::kWaiting;
  urgent_ = true;
}

bool RingWorker::cancelled(std::int64_t epoch) const {
  // Others have stopped at stop_at: the step that starts there will never be complete.
  const bool stopped = stopping() && view_.stop_at() >= 0 && version_ >= view_.stop_at();
  return over() || sealed_ > epoch || stopped;
}

bool RingWorker::evaluationDue() const {
  if (!config_.evaluates || version_ <= 0) return false;
  const std::int64_t every = config_.evaluate_every;
  if (version_ != plan_.steps && (every <= 0 || version_ % every != 0)) return false;
  return !evaluationDone();
}

StatusOr<std::optional<Turn>> RingWorker::turn() {
  StatusOr<std::optional<Turn>> end = endTurn();
  if (end.ok() && end->has_value()) {
    (*end)->epoch_step = plan_.first_step;
    if ((*end)->kind != Turn::Kind::kLeft) (*end)->taken = (*end)->step;
  }
  if (!end.ok() || end->has_value()) return end;
  if (activity_ != Activity::kReady || !active() || resting() || abort_)
    return std::optional<Turn>();
  Turn turn;
  turn.epoch = epoch_.epoch();
  turn.step = version_;
  turn.rank = rank_;
  turn.ranks = plan_.ranks;
  turn.epoch_step = plan_.first_step;
  turn_epoch_ = epoch_.epoch();
  if (evaluationDue()) {
    turn.kind = Turn::Kind::kEvaluate;
    return std::optional<Turn>(turn);
  }
  if (version_ >= plan_.steps) return std::optional<Turn>();  // waits for DONE
  step_ = version_;
  activity_ = Activity::kStepping;
  const StepPlan::Share share = plan_.shareOf(step_, rank_);
  standing_ = share.count == 0;
  if (standing_ && !config_.tells_standing) return std::optional<Turn>();
  turn.kind = Turn::Kind::kTrain;
  turn.samples = share.count;
  turn.step_samples = plan_.samplesOf(step_);
  turn.first_position = share.first;
  return std::optional<Turn>(turn);
}

bool RingWorker::beginApply() {
  if (activity_ != Activity::kStepping || abort_ || cancelled(epoch_.epoch())) return false;
  activity_ = Activity::kApplying;
  return true;
}

void RingWorker::applied(double loss) {
  TY_CHECK(activity_ == Activity::kApplying, "only a step that is being applied is applied");
  version_ = step_ + 1;
  loss_ = loss;
  loss_step_ = step_;
  activity_ = Activity::kReady;
  standing_ = false;
  // It came when the step was under way, and the version is no more.
  if (armed_.erase(step_) > 0) {
    missed_ = std::max(missed_, step_);
    urgent_ = true;
  }
  // A new epoch may be waiting for this worker's word.
  if (resting() || sealed_ > epoch_.epoch()) urgent_ = true;
}

void RingWorker::leaveStep() {
  if (activity_ == Activity::kStepping) {
    // Where all rest, the state that is held is good for going on.
    activity_ = cancelled(epoch_.epoch()) || abort_ ? Activity::kReady : Activity::kWaiting;
  }
  standing_ = false;
  if (resting()) urgent_ = true;
}

void RingWorker::arm(std::int64_t version) {
  if (rank_ != 0 || armed_.contains(version) || missed_ >= version) return;
  const bool there = std::any_of(written_.begin(), written_.end(), [&](const v1::ShardFile& f) {
    return f.epoch() == epoch_.epoch() && f.version() == version;
  });
  if (there || version == copied_) return;
  if (version_ > version) {
    missed_ = version;
    urgent_ = true;
    return;
  }
  armed_.insert(version);
}

bool RingWorker::takeSnapshot() {
  if (activity_ == Activity::kApplying || version_ < 0 || armed_.erase(version_) == 0) return false;
  copied_ = version_;
  return true;
}

void RingWorker::onWritten(const v1::ShardFile& file) {
  written_.push_back(file);
  if (written_.size() > kReportedFiles) written_.pop_front();
  urgent_ = true;
}

void RingWorker::fillReport(v1::MemberReport& report) const {
  fillCommon(report);
  if (activity_ == Activity::kApplying) report.set_sealed_epoch(epoch_.epoch());
  report.set_prepared_epoch(prepared_);
  v1::ShardState* state = report.mutable_shard();
  state->set_empty(version_ < 0);
  state->set_min_version(version_);
  state->set_max_version(version_);
  state->set_armed_checkpoint(armed_.empty() ? -1 : *armed_.begin());
  state->set_missed_checkpoint(missed_);
  state->set_captured_checkpoint(-1);
  state->set_problem(problem_);
  for (const v1::ShardFile& file : written_) *report.add_written() = file;
  v1::WorkerState* worker = report.mutable_worker();
  worker->set_idle(has_view_ && resting() && activity_ == Activity::kReady);
  if (loss_step_ >= 0) {
    worker->set_has_loss(true);
    worker->set_loss(loss_);
    worker->set_loss_step(loss_step_);
  }
  report.set_parameter_bytes(config_.parameter_bytes);
  report.set_ring_port(config_.port);
  if (failure_.epoch() > 0) *report.mutable_ring_failure() = failure_;
  const bool busy = activity_ == Activity::kStepping || activity_ == Activity::kApplying;
  report.set_leaving(over() && !busy);
}

}  // namespace trainyard::runtime::ring
