#include "runtime/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/core/failpoint.h"
#include "base/core/log_context.h"
#include "fmt/format.h"
#include "runtime/tensor/kernels.h"

namespace trainyard::runtime {
namespace {

// Evaluation batches: big enough to compute well, small enough to stop soon.
constexpr std::int64_t kEvaluationBatch = 250;

}  // namespace

Trainer::Trainer(const DataSplits& data, Model& model, Synchronizer& synchronizer,
                 TrainObserver& observer, std::uint64_t seed, const Clock& clock)
    : data_(data),
      model_(model),
      synchronizer_(synchronizer),
      observer_(observer),
      stream_(seed, data.train->size()),
      clock_(clock) {}

TrainTotals Trainer::totals() const {
  std::lock_guard lock(mutex_);
  return totals_;
}

void Trainer::phase(const char* name) {
  std::lock_guard lock(mutex_);
  totals_.phase = name;
}

StatusOr<TrainEnd> Trainer::run() {
  for (;;) {
    const TimePoint asked = clock_.now();
    TY_ASSIGN_OR_RETURN(const Turn turn, synchronizer_.next());
    const TimePoint answered = clock_.now();
    observer_.onSpan("wait", turn.step, asked, answered);
    {
      std::lock_guard lock(mutex_);
      totals_.wait_seconds += toSeconds(answered - asked);
      totals_.step = turn.step;
    }
    setLogProgress(turn.epoch, turn.step);
    switch (turn.kind) {
      case Turn::Kind::kTrain:
        phase("Training");
        TY_RETURN_IF_ERROR(trainStep(turn));
        break;
      case Turn::Kind::kEvaluate:
        phase("Evaluating");
        TY_RETURN_IF_ERROR(evaluateSlice(turn));
        break;
      case Turn::Kind::kDone:
      case Turn::Kind::kStopped:
        phase("Done");
        return TrainEnd{turn.kind == Turn::Kind::kStopped, turn.step};
      case Turn::Kind::kLeft:
        phase("Done");
        return TrainEnd{true, turn.step, true};
    }
  }
}

Status Trainer::trainStep(const Turn& turn) {
  const TimePoint start = clock_.now();
  std::vector<std::int64_t> positions(static_cast<std::size_t>(turn.samples));
  std::iota(positions.begin(), positions.end(), turn.first_position);
  samples_.resize(positions.size());
  stream_.lookUp(turn.first_position, samples_);
  data_.train->read(samples_, positions, batch_);
  const TimePoint have_data = clock_.now();
  hitFailpoint("worker.compute", turn.step);
  const FailAction poison = hitFailpoint("worker.gradient", turn.step);

  model_.deliverOnDevice(synchronizer_.wantsGradientsOnDevice());
  bool finite = true;
  const auto sink = [&](Gradient gradient) {
    // On a device only the sum is looked at, by whoever has it on the host.
    const bool seen = !gradient.on_device;
    const bool bad = poison == FailAction::kNan || (seen && !allFinite(gradient.values));
    if (bad && finite) {
      finite = false;
      const auto variable = static_cast<std::size_t>(gradient.variable);
      synchronizer_.abort(turn.step, model_.variables()[variable].name,
                          "the gradient is not finite");
    }
    // Nothing that is seen not to be finite leaves this worker.
    if (finite) synchronizer_.push(std::move(gradient));
  };
  TY_ASSIGN_OR_RETURN(const BatchLoss loss, model_.forwardBackward(batch_, sink));
  if (!std::isfinite(loss.loss_sum) && finite) {
    finite = false;
    synchronizer_.abort(turn.step, "", fmt::format("the loss is {}", loss.loss_sum));
  }
  const TimePoint computed = clock_.now();
  hitFailpoint("worker.push", turn.step);
  TY_ASSIGN_OR_RETURN(const StepOutcome outcome, synchronizer_.finish(loss));
  if (outcome.complete) hitFailpoint("worker.step", outcome.step);
  const TimePoint end = clock_.now();
  observer_.onSpan("data", turn.step, start, have_data);
  observer_.onSpan("compute", turn.step, have_data, computed);
  observer_.onSpan("wait", turn.step, computed, end);
  {
    std::lock_guard lock(mutex_);
    totals_.data_seconds += toSeconds(have_data - start);
    totals_.compute_seconds += toSeconds(computed - have_data);
    totals_.wait_seconds += toSeconds(end - computed);
    totals_.too_late += outcome.too_late;
    if (outcome.complete) {
      totals_.step = outcome.step + 1;
      totals_.examples += static_cast<std::uint64_t>(turn.samples);
      ++totals_.steps;
      totals_.last_step_seconds = toSeconds(end - start);
      totals_.step_times.observe(totals_.last_step_seconds);
      totals_.staleness.observe(
          static_cast<double>(std::max<std::int64_t>(0, outcome.step - turn.step)));
    }
  }
  if (!outcome.complete) {
    if (!outcome.too_late) recorded_.reset();
    return absl::OkStatus();
  }
  StepRecord record{.epoch = turn.epoch,
                    .step = outcome.step,
                    .rank = turn.rank,
                    .first_position = turn.first_position,
                    .samples = turn.samples,
                    .loss = outcome.loss,
                    .gradient_norm = outcome.gradient_norm};
  measure(turn, outcome, start, &record);
  return observer_.onStep(record);
}

void Trainer::measure(const Turn& turn, const StepOutcome& outcome, TimePoint start,
                      StepRecord* record) {
  const bool follows =
      recorded_ && recorded_->epoch == turn.epoch && recorded_->step <= outcome.step;
  const TimePoint end = clock_.now();
  record->job_samples = turn.step_samples * (follows ? outcome.step - recorded_->step : 1);
  record->seconds = toSeconds(end - (follows ? recorded_->end : start));
  train_seconds_ += record->seconds;
  record->train_seconds = train_seconds_;
  recorded_ = Recorded{turn.epoch, outcome.step, end};
}

Status Trainer::evaluateSlice(const Turn& turn) {
  recorded_.reset();
  const TimePoint start = clock_.now();
  hitFailpoint("worker.evaluate", turn.step);
  const auto [begin, end] = evaluationSlice(data_.eval->size(), turn.ranks, turn.rank);
  BatchScore total;
  for (std::int64_t at = begin; at < end && !synchronizer_.interrupted(); at += kEvaluationBatch) {
    samples_.resize(static_cast<std::size_t>(std::min(kEvaluationBatch, end - at)));
    std::iota(samples_.begin(), samples_.end(), at);
    data_.eval->read(samples_, samples_, batch_);
    TY_ASSIGN_OR_RETURN(const BatchScore score, model_.evaluate(batch_));
    total.hits += score.hits;
    total.samples += score.samples;
    total.loss_sum += score.loss_sum;
  }
  synchronizer_.evaluated(total);
  const TimePoint scored = clock_.now();
  observer_.onSpan("evaluate", turn.step, start, scored);
  std::lock_guard lock(mutex_);
  totals_.evaluate_seconds += toSeconds(scored - start);
  return absl::OkStatus();
}

}  // namespace trainyard::runtime
