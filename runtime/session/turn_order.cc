#include "runtime/session/turn_order.h"

#include <algorithm>

#include "fmt/format.h"

namespace trainyard::runtime::session {

Status TurnOrder::declare(const Declaration& declaration) {
  if (!trained_.empty()) return absl::InvalidArgumentError("the model is declared already");
  for (const DeclaredVariable& variable : declaration.variables)
    trained_.push_back(variable.trainable);
  return absl::OkStatus();
}

Status TurnOrder::next() const {
  if (trained_.empty()) return absl::InvalidArgumentError("the model must be declared first");
  if (over_) return absl::InvalidArgumentError("the job is over");
  if (turn_ == Turn::Kind::kTrain)
    return absl::InvalidArgumentError("the step must be finished before the next turn");
  if (turn_ == Turn::Kind::kEvaluate)
    return absl::InvalidArgumentError("the evaluation must be told before the next turn");
  return absl::OkStatus();
}

void TurnOrder::begin(Turn::Kind kind) {
  turn_ = kind;
  over_ = kind != Turn::Kind::kTrain && kind != Turn::Kind::kEvaluate;
  pushed_.assign(trained_.size(), false);
}

Status TurnOrder::push(std::uint32_t variable) {
  if (turn_ != Turn::Kind::kTrain)
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

Status TurnOrder::finish() {
  if (turn_ != Turn::Kind::kTrain)
    return absl::InvalidArgumentError("the end of a step outside of a turn to train");
  if (pushed_ != trained_) {
    const auto missing = std::mismatch(pushed_.begin(), pushed_.end(), trained_.begin()).first;
    return absl::InvalidArgumentError(fmt::format("variable {} has no gradient in this step",
                                                  std::distance(pushed_.begin(), missing)));
  }
  turn_.reset();
  return absl::OkStatus();
}

Status TurnOrder::evaluated() {
  if (turn_ != Turn::Kind::kEvaluate)
    return absl::InvalidArgumentError("a score outside of a turn to evaluate");
  turn_.reset();
  return absl::OkStatus();
}

}  // namespace trainyard::runtime::session
