// A job in a few lines, behind a session: descends a parabola.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/session/serve.h"
#include "runtime/session/session_memory.h"

namespace trainyard::runtime::session {

inline const Declaration kModel{
    .samples = 100,
    .eval_samples = 10,
    .variables = {{"w", {2}}, {"mean", {3}, ElementType::kFloat32, false}, {"b", {}}}};

inline Declaration ownUpdateModel() {
  Declaration model = kModel;
  model.own_update = true;
  return model;
}

// Rows that are squares of their ids, and what comes of them.
class SquareRows final : public RowHost {
 public:
  StatusOr<std::vector<float>> lookUp(const LookUp& look_up) override {
    std::vector<float> rows;
    for (const std::uint64_t id : look_up.ids) {
      rows.push_back(static_cast<float>(id * id));
      rows.push_back(static_cast<float>(look_up.table));
    }
    return rows;
  }
  void push(const PushRows& push) override { pushed.push_back(push); }
  void lookAhead(LookAhead ahead) override { this->ahead.push_back(std::move(ahead)); }

  std::vector<PushRows> pushed;
  std::vector<LookAhead> ahead;
};

// w <- w - gradient / samples; `steps` steps, then an evaluation, then done. Takes kModel, or
// ownUpdateModel(), of which the program makes that update itself; either with state of the
// program's own, which is asked for at `save_at` and given back at `load_at`.
class ParabolaHost final : public SessionHost {
 public:
  explicit ParabolaHost(std::int64_t steps) : steps_(steps) {}

  StatusOr<MemoryPlace> declare(const Declaration& declaration) override {
    Declaration stateless = declaration;
    stateless.has_state = false;
    if (stateless != kModel && stateless != ownUpdateModel())
      return absl::FailedPreconditionError(difference(declaration, kModel));
    has_state_ = declaration.has_state;
    TY_ASSIGN_OR_RETURN(SessionMemory memory, SessionMemory::create(declaration));
    memory_.emplace(std::move(memory));
    return memory_->place();
  }
  StatusOr<TurnMessage> next(WaitingProgram& program) override {
    if (!failure.ok()) return failure;
    if (has_state_) TY_RETURN_IF_ERROR(moveState(program));
    TurnMessage message;
    message.turn.step = step_;
    if (step_ < steps_) {
      message.turn.samples = 2;
      message.samples = {2 * step_, 2 * step_ + 1};
    } else {
      message.turn.kind = hits ? Turn::Kind::kDone : Turn::Kind::kEvaluate;
      message.turn.samples = hits ? 0 : 10;
    }
    return message;
  }
  void push(std::uint32_t variable) override { pushed.push_back(variable); }
  RowHost* rows() override { return &squares; }
  StatusOr<Outcome> finish(const Finish& finish) override {
    counted.push_back(finish.hits);
    for (const std::size_t variable : {0, 2}) {
      const auto gradient = memory_->gradient(variable);
      const auto value = memory_->value(variable);
      auto* const weights = reinterpret_cast<float*>(value.data());
      for (std::size_t i = 0; i < gradient.size(); ++i)
        weights[i] -= gradient[i] / static_cast<float>(finish.samples);
    }
    return Outcome{.complete = true, .step = step_++, .loss = finish.loss_sum / finish.samples};
  }
  StatusOr<Outcome> sum(const Finish& finish) override {
    counted.push_back(finish.hits);
    const bool complete = incomplete == 0;
    if (!complete) --incomplete;
    if (complete) {
      for (const std::size_t variable : {0, 2}) {
        for (float& value : memory_->gradient(variable))
          value /= static_cast<float>(finish.samples);
      }
    }
    summed_ = {.complete = complete,
               .too_late = false,
               .step = complete ? step_ : 0,
               .loss = complete ? finish.loss_sum / finish.samples : 0,
               .gradient_norm = std::nullopt};
    return summed_;
  }
  StatusOr<Outcome> commit() override {
    ++step_;
    return summed_;
  }
  void evaluated(const Score& score) override {
    hits = score.hits;
    auc = score.clicks.auc();
  }
  void abort(std::string_view why) override { aborted = why; }
  SessionMemory& memory() { return *memory_; }

  Status failure;
  int incomplete = 0;  // of the next sums
  std::int64_t save_at = 1;
  std::int64_t load_at = 3;
  std::string state;  // that was asked for
  std::vector<std::uint32_t> pushed;
  std::vector<std::int64_t> counted;  // hits of each step
  std::optional<std::int64_t> hits;   // of the evaluation
  std::optional<double> auc;
  std::string aborted;
  SquareRows squares;

 private:
  Status moveState(WaitingProgram& program) {
    if (step_ == save_at) {
      TY_ASSIGN_OR_RETURN(const StateMemory saved, program.save(step_));
      state.assign(reinterpret_cast<const char*>(saved.bytes().data()), saved.bytes().size());
    }
    if (step_ != load_at) return absl::OkStatus();
    TY_ASSIGN_OR_RETURN(const StateMemory memory, StateMemory::create(state.size()));
    std::ranges::copy(std::as_bytes(std::span(state)), memory.bytes().begin());
    return program.load(step_, memory);
  }

  bool has_state_ = false;
  const std::int64_t steps_;
  std::int64_t step_ = 0;
  Outcome summed_;
  std::optional<SessionMemory> memory_;
};

}  // namespace trainyard::runtime::session
