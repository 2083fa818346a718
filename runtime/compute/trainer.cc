#include "runtime/compute/trainer.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/core/failpoint.h"

namespace trainyard::runtime {
namespace {

// Evaluation batches: big enough to compute well, small enough to stop soon.
constexpr std::int64_t kEvaluationBatch = 250;

SessionOptions sessionOptions(const DataSplits& data, const Model& model, std::uint64_t seed) {
  SessionOptions options;
  for (const Variable& variable : model.variables()) options.variables.push_back(variable.name);
  options.seed = seed;
  options.samples = data.train->size();
  options.evaluation_samples = data.eval == nullptr ? 0 : data.eval->size();
  options.order = data.order;
  return options;
}

}  // namespace

Trainer::Trainer(const DataSplits& data, Model& model, Synchronizer& synchronizer,
                 TrainObserver& observer, std::uint64_t seed, const Clock& clock,
                 std::vector<TableLookup> tables)
    : data_(data),
      model_(model),
      tables_(std::move(tables)),
      session_(sessionOptions(data, model, seed), synchronizer, observer, clock) {
  if (data.prefetch > 0) ahead_.emplace(*data.train, seed, data.order, data.prefetch);
}

StatusOr<TrainEnd> Trainer::run() {
  for (;;) {
    TY_ASSIGN_OR_RETURN(const Turn turn, session_.next());
    switch (turn.kind) {
      case Turn::Kind::kTrain:
        TY_RETURN_IF_ERROR(trainStep(turn));
        break;
      case Turn::Kind::kEvaluate:
        TY_RETURN_IF_ERROR(evaluateSlice());
        break;
      case Turn::Kind::kDone:
      case Turn::Kind::kStopped:
        return TrainEnd{turn.kind == Turn::Kind::kStopped, turn.step};
      case Turn::Kind::kLeft:
        return TrainEnd{true, turn.step, true};
      case Turn::Kind::kSave:
      case Turn::Kind::kLoad:
        return absl::InternalError("a turn for a program's state, which no model of ours has");
    }
  }
}

void Trainer::readSamples(const Turn& turn) {
  if (ahead_ && turn.samples > 0) {
    ahead_->read(turn.first_position, turn.samples, turn.step_samples, batch_);
  } else {
    data_.train->read(session_.samples(), session_.positions(), batch_);
  }
}

Status Trainer::trainStep(const Turn& turn) {
  readSamples(turn);
  RowExchange* const rows = session_.rowExchange();
  if (rows != nullptr) batch_.rows = rows->rows().values;
  session_.computing();
  model_.deliverOnDevice(session_.wantsGradientsOnDevice());
  Status pushed;
  const auto sink = [&](Gradient gradient) { pushed.Update(session_.push(std::move(gradient))); };
  TY_ASSIGN_OR_RETURN(const BatchLoss loss, model_.forwardBackward(batch_, sink));
  TY_RETURN_IF_ERROR(pushed);
  if (rows != nullptr) rows->pushRows(rowGradients(turn.step));
  return session_.finish(loss).status();
}

RowValues Trainer::rowGradients(std::int64_t step) {
  RowValues gradients = model_.takeRowGradients();
  if (hitFailpoint("worker.rows", step) != FailAction::kNan) return gradients;
  const auto some = std::ranges::find_if(gradients, [](const auto& of) { return !of.empty(); });
  if (some != gradients.end()) some->front() = std::numeric_limits<float>::quiet_NaN();
  return gradients;
}

// CANCELLED: the evaluation is void.
Status Trainer::readEvaluationRows() {
  RowExchange* const rows = session_.rowExchange();
  if (rows == nullptr) return absl::OkStatus();
  TY_ASSIGN_OR_RETURN(batch_.rows, rows->readRows(occurrencesOf(tables_, batch_.features)));
  return absl::OkStatus();
}

Status Trainer::evaluateSlice() {
  const auto [begin, end] = session_.evaluationRange();
  BatchScore total;
  for (std::int64_t at = begin; at < end && !session_.interrupted(); at += kEvaluationBatch) {
    samples_.resize(static_cast<std::size_t>(std::min(kEvaluationBatch, end - at)));
    std::iota(samples_.begin(), samples_.end(), at);
    data_.eval->read(samples_, samples_, batch_);
    const Status have_rows = readEvaluationRows();
    if (absl::IsCancelled(have_rows)) break;
    TY_RETURN_IF_ERROR(have_rows);
    TY_ASSIGN_OR_RETURN(const BatchScore score, model_.evaluate(batch_));
    total.add(score);
  }
  session_.evaluated(total);
  return absl::OkStatus();
}

}  // namespace trainyard::runtime
