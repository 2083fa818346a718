#include "runtime/train/training_session.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/core/failpoint.h"
#include "base/core/log_context.h"
#include "fmt/format.h"
#include "runtime/tensor/kernels.h"

namespace trainyard::runtime {
namespace {

const char* phaseOf(Turn::Kind kind) {
  switch (kind) {
    case Turn::Kind::kTrain:
      return "Training";
    case Turn::Kind::kEvaluate:
      return "Evaluating";
    case Turn::Kind::kDone:
    case Turn::Kind::kStopped:
    case Turn::Kind::kLeft:
    case Turn::Kind::kSave:
    case Turn::Kind::kLoad:
      break;
  }
  return "Done";
}

}  // namespace

TrainingSession::TrainingSession(SessionOptions options, Synchronizer& synchronizer,
                                 TrainObserver& observer, const Clock& clock, StepCommit* commit)
    : options_(std::move(options)),
      synchronizer_(synchronizer),
      commit_(commit),
      observer_(observer),
      clock_(clock),
      stream_(options_.seed, options_.samples, options_.order) {}

TrainTotals TrainingSession::totals() const {
  std::lock_guard lock(mutex_);
  return totals_;
}

StatusOr<Turn> TrainingSession::next() {
  if (summed_) {
    return absl::FailedPreconditionError(
        fmt::format("step {} is summed and not committed", turn_.step));
  }
  const TimePoint asked = clock_.now();
  TY_ASSIGN_OR_RETURN(turn_, synchronizer_.next());
  began_ = clock_.now();
  observer_.onSpan("wait", turn_.step, asked, began_);
  {
    std::lock_guard lock(mutex_);
    totals_.wait_seconds += toSeconds(began_ - asked);
    totals_.step = turn_.step;
    totals_.phase = phaseOf(turn_.kind);
  }
  setLogProgress(turn_.epoch, turn_.step);
  TY_RETURN_IF_ERROR(settleGivenUp());
  if (turn_.kind == Turn::Kind::kTrain) beginStep();
  if (turn_.kind == Turn::Kind::kEvaluate) beginEvaluation();
  return turn_;
}

void TrainingSession::beginStep() {
  positions_.resize(static_cast<std::size_t>(turn_.samples));
  std::iota(positions_.begin(), positions_.end(), turn_.first_position);
  samples_.resize(positions_.size());
  stream_.lookUp(turn_.first_position, samples_);
  have_data_ = began_;
  delivered_.assign(turn_.samples > 0 ? options_.variables.size() : 0, false);
  poisoned_ = false;
  finite_ = true;
}

void TrainingSession::computing() {
  have_data_ = clock_.now();
  hitFailpoint("worker.compute", turn_.step);
  poisoned_ = hitFailpoint("worker.gradient", turn_.step) == FailAction::kNan;
}

void TrainingSession::noteNotFinite(std::string_view variable, std::string_view reason) {
  if (finite_) synchronizer_.abort(turn_.step, variable, reason);
  finite_ = false;
}

Status TrainingSession::push(Gradient gradient) {
  if (turn_.samples == 0) {
    return absl::InvalidArgumentError(
        fmt::format("a gradient in step {}, which has no samples for this worker", turn_.step));
  }
  const auto variable = static_cast<std::size_t>(gradient.variable);
  if (variable >= delivered_.size()) {
    return absl::InvalidArgumentError(fmt::format("a gradient of variable {}, there are {}",
                                                  gradient.variable, delivered_.size()));
  }
  const std::string& name = options_.variables[variable];
  if (delivered_[variable])
    return absl::InvalidArgumentError(fmt::format("two gradients of {} in one step", name));
  delivered_[variable] = true;
  // On a device only the sum is looked at, by whoever has it on the host; what is copied anyway, by
  // whoever copies it.
  const bool looks = !gradient.on_device && !synchronizer_.copiesGradients();
  bool finite = !poisoned_ && (!looks || allFinite(gradient.values));
  // Nothing that is seen not to be finite leaves this worker.
  if (finite && finite_) finite = synchronizer_.push(std::move(gradient));
  if (!finite) noteNotFinite(name, "the gradient is not finite");
  return absl::OkStatus();
}

// Without it the others would wait for this worker without end.
Status TrainingSession::checkAllPushed() const {
  const auto missing = std::ranges::find(delivered_, false);
  if (missing == delivered_.end()) return absl::OkStatus();
  const auto variable = static_cast<std::size_t>(missing - delivered_.begin());
  return absl::InvalidArgumentError(
      fmt::format("no gradient of {} in step {}", options_.variables[variable], turn_.step));
}

Status TrainingSession::endPass(const BatchLoss& loss) {
  TY_RETURN_IF_ERROR(checkAllPushed());
  if (!std::isfinite(loss.loss_sum))
    noteNotFinite("", fmt::format("the loss is {}", loss.loss_sum));
  own_loss_ = loss.samples > 0 ? loss.loss_sum / loss.samples : 0;
  own_accuracy_ = accuracyOf(loss.hits, loss.samples);
  computed_ = clock_.now();
  hitFailpoint("worker.push", turn_.step);
  return absl::OkStatus();
}

StatusOr<StepOutcome> TrainingSession::finish(const BatchLoss& loss) {
  TY_RETURN_IF_ERROR(endPass(loss));
  TY_ASSIGN_OR_RETURN(const StepOutcome outcome, synchronizer_.finish(loss));
  if (outcome.complete) hitFailpoint("worker.step", outcome.step);
  answered_ = clock_.now();
  return settle(outcome, answered_);
}

StatusOr<std::optional<SummedStep>> TrainingSession::sum(const BatchLoss& loss,
                                                         StepCommit::Arrays means) {
  if (commit_ == nullptr)
    return absl::FailedPreconditionError("parameter servers take the steps of this job");
  TY_RETURN_IF_ERROR(endPass(loss));
  TY_ASSIGN_OR_RETURN(std::optional<SummedStep> summed, commit_->sum(loss, std::move(means)));
  answered_ = clock_.now();
  summed_ = summed.has_value();
  if (!summed_) TY_RETURN_IF_ERROR(settle(StepOutcome{}, answered_).status());
  return summed;
}

StatusOr<StepOutcome> TrainingSession::commit() {
  if (!summed_) return absl::FailedPreconditionError("no step is summed");
  summed_ = false;
  const StepOutcome outcome = commit_->commit();
  hitFailpoint("worker.step", outcome.step);
  return settle(outcome, clock_.now());
}

StatusOr<StepOutcome> TrainingSession::settle(const StepOutcome& outcome, TimePoint end) {
  count(outcome, end);
  StepRecord record{.epoch = turn_.epoch,
                    .step = outcome.step,
                    .rank = turn_.rank,
                    .first_position = turn_.first_position,
                    .samples = turn_.samples,
                    .loss = outcome.loss,
                    .accuracy = outcome.accuracy,
                    .gradient_norm = outcome.gradient_norm};
  if (!outcome.complete) {
    if (outcome.too_late) return outcome;
    recorded_.reset();
    record.step = turn_.step;
    record.loss = own_loss_;
    record.accuracy = own_accuracy_;
    record.job_samples = turn_.step_samples;
    record.seconds = toSeconds(end - began_);
    given_up_ = record;
    return outcome;
  }
  measure(outcome, &record);
  TY_RETURN_IF_ERROR(observer_.onStep(record));
  return outcome;
}

// Its samples were used, and nobody else will say so. Of the loss only this worker's is known.
Status TrainingSession::settleGivenUp() {
  const std::optional<StepRecord> given_up = std::exchange(given_up_, std::nullopt);
  if (!given_up) return absl::OkStatus();
  const bool former = given_up->epoch < turn_.epoch;
  if (given_up->step >= (former ? turn_.epoch_step : turn_.taken)) return absl::OkStatus();
  StepRecord record = *given_up;
  train_seconds_ += record.seconds;
  record.train_seconds = train_seconds_;
  {
    std::lock_guard lock(mutex_);
    totals_.examples += static_cast<std::uint64_t>(record.samples);
    ++totals_.steps;
  }
  return observer_.onStep(record);
}

// An update of the caller's own is computing, after the wait.
void TrainingSession::count(const StepOutcome& outcome, TimePoint end) {
  observer_.onSpan("data", turn_.step, began_, have_data_);
  observer_.onSpan("compute", turn_.step, have_data_, computed_);
  observer_.onSpan("wait", turn_.step, computed_, answered_);
  if (end > answered_) observer_.onSpan("update", turn_.step, answered_, end);
  std::lock_guard lock(mutex_);
  totals_.data_seconds += toSeconds(have_data_ - began_);
  totals_.compute_seconds += toSeconds(computed_ - have_data_) + toSeconds(end - answered_);
  totals_.wait_seconds += toSeconds(answered_ - computed_);
  totals_.too_late += outcome.too_late;
  if (!outcome.complete) return;
  totals_.step = outcome.step + 1;
  totals_.examples += static_cast<std::uint64_t>(turn_.samples);
  ++totals_.steps;
  totals_.last_step_seconds = toSeconds(end - began_);
  totals_.step_times.observe(totals_.last_step_seconds);
  totals_.staleness.observe(
      static_cast<double>(std::max<std::int64_t>(0, outcome.step - turn_.step)));
}

void TrainingSession::measure(const StepOutcome& outcome, StepRecord* record) {
  const bool follows =
      recorded_ && recorded_->epoch == turn_.epoch && recorded_->step <= outcome.step;
  const TimePoint end = clock_.now();
  record->job_samples = turn_.step_samples * (follows ? outcome.step - recorded_->step : 1);
  record->seconds = toSeconds(end - (follows ? recorded_->end : began_));
  train_seconds_ += record->seconds;
  record->train_seconds = train_seconds_;
  recorded_ = Recorded{turn_.epoch, outcome.step, end};
}

void TrainingSession::beginEvaluation() {
  recorded_.reset();
  hitFailpoint("worker.evaluate", turn_.step);
}

std::pair<std::int64_t, std::int64_t> TrainingSession::evaluationRange() const {
  return evaluationSlice(options_.evaluation_samples, turn_.ranks, turn_.rank);
}

void TrainingSession::evaluated(const BatchScore& score) {
  synchronizer_.evaluated(score);
  const TimePoint scored = clock_.now();
  observer_.onSpan("evaluate", turn_.step, began_, scored);
  std::lock_guard lock(mutex_);
  totals_.evaluate_seconds += toSeconds(scored - began_);
}

}  // namespace trainyard::runtime
