// The synchronizer of a job with one worker and nobody else: plain descent with rate 1, in memory.
// tests/conformance/synchronizer holds it to what the real ones do.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "runtime/tensor/kernels.h"
#include "runtime/train/step_commit.h"
#include "runtime/train/synchronizer.h"

namespace trainyard::runtime {

class FakeSynchronizer final : public Synchronizer, public StepCommit {
 public:
  struct Options {
    int samples = 1;                  // of each step
    std::int64_t evaluate_every = 0;  // steps; 0: never
    int rank = 0;                     // what turns say
    int ranks = 1;
    bool all_ranks = false;              // a step needs every rank's gradient
    std::function<void()> wait = [] {};  // called where a real one waits
  };
  FakeSynchronizer(Options options, std::vector<std::span<float>> weights)
      : options_(std::move(options)), weights_(std::move(weights)) {}

  // What a coordinator says. An epoch begins with the version that is held, or goes back to an
  // earlier step.
  void beginEpoch(std::int64_t epoch, std::int64_t first_step) {
    epoch_ = epoch;
    step_ = first_step;
    evaluated_ = -1;
    epoch_step_ = options_.all_ranks ? first_step : 0;
  }
  std::int64_t epoch() const { return epoch_; }
  void end(Turn::Kind kind) { end_ = kind; }
  void fail(const std::string& reason) { failure_ = reason; }
  // The steps that others have taken meanwhile, in modes in which they do.
  void skipTo(std::int64_t step) { step_ = step; }
  // The next gradient is one that others did not wait for.
  void beTooLate() { too_late_ = true; }

  StatusOr<Turn> next() override {
    options_.wait();
    if (!failure_.empty()) return absl::FailedPreconditionError(failure_);
    sums_.assign(weights_.size(), {});
    turn_epoch_ = epoch_;
    Turn turn;
    turn.epoch = epoch_;
    turn.step = step_;
    turn.rank = options_.rank;
    turn.ranks = options_.ranks;
    turn.epoch_step = epoch_step_;
    if (end_) {
      turn.kind = *end_;
      if (options_.all_ranks && *end_ != Turn::Kind::kLeft) turn.taken = step_;
    } else if (options_.evaluate_every > 0 && step_ > 0 && step_ % options_.evaluate_every == 0 &&
               evaluated_ != step_) {
      turn.kind = Turn::Kind::kEvaluate;
    } else {
      turn.samples = options_.samples;
      turn.step_samples = options_.samples;
      turn.first_position = step_ * options_.samples;
    }
    return turn;
  }
  bool wantsGradientsOnDevice() const override { return on_device; }
  bool copiesGradients() const override { return copies; }
  bool push(Gradient gradient) override {
    pushed.push_back(gradient.variable);
    pushed_from.push_back(gradient.values.data());
    if (gradient.on_device) return true;
    if (copies && !allFinite(gradient.values)) return false;
    sums_[static_cast<std::size_t>(gradient.variable)] = {gradient.values.begin(),
                                                          gradient.values.end()};
    return true;
  }
  StatusOr<StepOutcome> finish(const BatchLoss& loss) override {
    options_.wait();
    StepOutcome outcome;
    outcome.too_late = std::exchange(too_late_, false);
    if (outcome.too_late) return outcome;
    TY_ASSIGN_OR_RETURN(const std::optional<SummedStep> summed, average(loss));
    if (!summed) return outcome;
    for (std::size_t v = 0; v < summed->means.size(); ++v) {
      for (std::size_t i = 0; i < summed->means[v].size(); ++i)
        weights_[v][i] -= summed->means[v][i];
    }
    return commit();
  }
  StatusOr<std::optional<SummedStep>> sum(const BatchLoss& loss, Arrays means = {}) override {
    options_.wait();
    return average(loss, std::move(means));
  }
  StepOutcome commit() override {
    step_ = committing_.step + 1;
    return committing_;
  }
  bool interrupted() const override {
    return end_.has_value() || !failure_.empty() || turn_epoch_ != epoch_;
  }
  void evaluated(const BatchScore& score) override {
    if (interrupted()) return;
    evaluated_ = step_;
    scores.push_back(score);
  }
  void abort(std::int64_t step, std::string_view variable, std::string_view reason) override {
    if (aborted.empty()) aborted = fmt::format("{}|{}|{}", step, variable, reason);
  }

  bool on_device = false;
  bool copies = false;
  std::vector<const float*> pushed_from;  // where gradients were
  std::vector<int> pushed;                // variables, since the start
  std::vector<BatchScore> scores;
  std::string aborted;  // "step|variable|reason", the first

 private:
  StatusOr<std::optional<SummedStep>> average(const BatchLoss& loss, Arrays means = {}) {
    if (!aborted.empty() || interrupted()) return std::optional<SummedStep>();
    SummedStep summed;
    summed.step = step_;
    summed.loss = loss.loss_sum / loss.samples;
    summed.accuracy = accuracyOf(loss.hits, loss.samples);
    for (std::size_t v = 0; v < sums_.size(); ++v) {
      for (float& value : sums_[v]) value /= static_cast<float>(options_.samples);
      if (!means.empty()) std::ranges::copy(sums_[v], means[v].begin());
      summed.means.push_back(means.empty() ? std::span<float>(sums_[v]) : means[v]);
    }
    committing_ = {true, summed.step, summed.loss, summed.accuracy};
    return summed;
  }

  const Options options_;
  const std::vector<std::span<float>> weights_;
  std::vector<std::vector<float>> sums_;
  StepOutcome committing_;
  std::int64_t epoch_ = 0;
  std::int64_t step_ = 0;
  std::int64_t turn_epoch_ = 0;
  std::int64_t epoch_step_ = 0;
  std::int64_t evaluated_ = -1;
  std::optional<Turn::Kind> end_;
  std::string failure_;
  bool too_late_ = false;
};

}  // namespace trainyard::runtime
