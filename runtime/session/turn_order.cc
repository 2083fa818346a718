#include "runtime/session/turn_order.h"

#include <algorithm>

#include "fmt/format.h"

namespace trainyard::runtime::session {

Status TurnOrder::declare(const Declaration& declaration) {
  if (!trained_.empty()) return absl::InvalidArgumentError("the model is declared already");
  for (const DeclaredVariable& variable : declaration.variables)
    trained_.push_back(variable.trainable);
  own_update_ = declaration.own_update;
  return absl::OkStatus();
}

Status TurnOrder::next() const {
  if (trained_.empty()) return absl::InvalidArgumentError("the model must be declared first");
  if (over_) return absl::InvalidArgumentError("the job is over");
  if (summed_) return absl::InvalidArgumentError("the step must be committed before the next turn");
  if (turn_ == Turn::Kind::kTrain)
    return absl::InvalidArgumentError("the step must be finished before the next turn");
  if (turn_ == Turn::Kind::kEvaluate)
    return absl::InvalidArgumentError("the evaluation must be told before the next turn");
  if (turn_ == Turn::Kind::kSave)
    return absl::InvalidArgumentError("the state must be saved before the next turn");
  return absl::OkStatus();
}

void TurnOrder::begin(const Turn& turn) {
  turn_ = turn.kind;
  over_ = isOver(turn.kind);
  samples_ = turn.samples;
  pushed_.assign(trained_.size(), false);
}

Status TurnOrder::push(std::uint32_t variable) {
  if (turn_ != Turn::Kind::kTrain || summed_)
    return absl::InvalidArgumentError("a gradient outside of a turn to train");
  if (variable >= trained_.size() || !trained_[variable])
    return absl::InvalidArgumentError(fmt::format("variable {} is not trained", variable));
  if (pushed_[variable]) {
    return absl::InvalidArgumentError(
        fmt::format("the gradient of variable {} was given already", variable));
  }
  pushed_[variable] = true;
  return absl::OkStatus();
}

Status TurnOrder::lookUp() const {
  const bool trains = turn_ == Turn::Kind::kTrain && !summed_;
  if (!trains && turn_ != Turn::Kind::kEvaluate)
    return absl::InvalidArgumentError("rows outside of a turn to train or to evaluate");
  return absl::OkStatus();
}

Status TurnOrder::pushRows() const {
  if (turn_ != Turn::Kind::kTrain || summed_)
    return absl::InvalidArgumentError("gradients of rows outside of a turn to train");
  return absl::OkStatus();
}

Status TurnOrder::lookAhead() const {
  if (turn_ != Turn::Kind::kTrain || summed_)
    return absl::InvalidArgumentError("ids of later samples outside of a turn to train");
  return absl::OkStatus();
}

Status TurnOrder::countHits(std::int64_t hits) const {
  if (turn_ != Turn::Kind::kTrain || summed_)
    return absl::InvalidArgumentError("hits outside of a turn to train");
  if (hits < 0 || hits > samples_)
    return absl::InvalidArgumentError(fmt::format("{} hits of {} samples", hits, samples_));
  return absl::OkStatus();
}

// Whether all of a step's gradients are handed over, for whoever makes the update.
Status TurnOrder::step(bool own_update) const {
  if (turn_ != Turn::Kind::kTrain || summed_)
    return absl::InvalidArgumentError("the end of a step outside of a turn to train");
  if (own_update != own_update_) {
    return absl::InvalidArgumentError(
        own_update_
            ? "the program makes this model's update: the step is to be summed and committed"
            : "the job makes this model's update: the step is to be finished");
  }
  if (samples_ > 0 && pushed_ != trained_) {
    const auto missing = std::mismatch(pushed_.begin(), pushed_.end(), trained_.begin()).first;
    return absl::InvalidArgumentError(fmt::format("variable {} has no gradient in this step",
                                                  std::distance(pushed_.begin(), missing)));
  }
  return absl::OkStatus();
}

Status TurnOrder::finish() {
  TY_RETURN_IF_ERROR(step(/*own_update=*/false));
  turn_.reset();
  return absl::OkStatus();
}

Status TurnOrder::sum() {
  TY_RETURN_IF_ERROR(step(/*own_update=*/true));
  summed_ = true;
  return absl::OkStatus();
}

void TurnOrder::summed(bool complete) {
  summed_ = complete;
  if (!complete) turn_.reset();
}

Status TurnOrder::commit() {
  if (!summed_) return absl::InvalidArgumentError("no step is summed");
  summed_ = false;
  turn_.reset();
  return absl::OkStatus();
}

Status TurnOrder::save() {
  if (turn_ != Turn::Kind::kSave)
    return absl::InvalidArgumentError("state outside of a turn to save it");
  turn_.reset();
  return absl::OkStatus();
}

Status TurnOrder::scores() const {
  if (turn_ != Turn::Kind::kEvaluate)
    return absl::InvalidArgumentError("a score outside of a turn to evaluate");
  return absl::OkStatus();
}

Status TurnOrder::evaluated() {
  TY_RETURN_IF_ERROR(scores());
  turn_.reset();
  return absl::OkStatus();
}

}  // namespace trainyard::runtime::session
