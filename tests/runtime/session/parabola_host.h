// A job in a few lines, behind a session: descends a parabola.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/session/serve.h"
#include "runtime/session/session_memory.h"

namespace trainyard::runtime::session {

inline const Declaration kModel{
    .samples = 100,
    .eval_samples = 10,
    .variables = {{"w", {2}}, {"mean", {3}, ElementType::kFloat32, false}, {"b", {}}}};

// w <- w - gradient / samples; `steps` steps, then an evaluation, then done.
class ParabolaHost final : public SessionHost {
 public:
  explicit ParabolaHost(std::int64_t steps) : steps_(steps) {}

  StatusOr<MemoryPlace> declare(const Declaration& declaration) override {
    if (declaration != kModel)
      return absl::FailedPreconditionError(difference(declaration, kModel));
    TY_ASSIGN_OR_RETURN(SessionMemory memory, SessionMemory::create(declaration));
    memory_.emplace(std::move(memory));
    return memory_->place();
  }
  StatusOr<TurnMessage> next() override {
    if (!failure.ok()) return failure;
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
  StatusOr<Outcome> finish(const Finish& finish) override {
    for (const std::size_t variable : {0, 2}) {
      const auto gradient = memory_->gradient(variable);
      const auto value = memory_->value(variable);
      auto* const weights = reinterpret_cast<float*>(value.data());
      for (std::size_t i = 0; i < gradient.size(); ++i)
        weights[i] -= gradient[i] / static_cast<float>(finish.samples);
    }
    return Outcome{.complete = true, .step = step_++, .loss = finish.loss_sum / finish.samples};
  }
  void evaluated(const Score& score) override { hits = score.hits; }
  void abort(std::string_view why) override { aborted = why; }
  SessionMemory& memory() { return *memory_; }

  Status failure;
  std::vector<std::uint32_t> pushed;
  std::optional<std::int64_t> hits;
  std::string aborted;

 private:
  const std::int64_t steps_;
  std::int64_t step_ = 0;
  std::optional<SessionMemory> memory_;
};

}  // namespace trainyard::runtime::session
