// What whoever computes brings to a step, whatever computes it: gradients, a loss, a score.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "runtime/data/click_scores.h"

namespace trainyard::runtime {

// The gradient of one variable: the SUM over the batch's samples, contiguous, in the variable's
// layout. `owner` keeps the memory alive and unchanged as long as someone holds it.
struct Gradient {
  int variable = 0;  // among the trainable ones, in the order of the model
  std::span<const float> values;
  std::shared_ptr<const void> owner;
  // Of the variables that Model::deliverRows() named: those rows, strictly ascending, whose values
  // these are, one row after the other; all others are zero. Kept alive by `owner`, too.
  std::span<const std::int64_t> rows = {};
  // `values` are an address in the memory of the device that the model computes on, which the host
  // must not follow. They are computed; `owner` is let go of when nothing on the device reads them
  // any more.
  bool on_device = false;
};

// Of samples told right, where nobody says how many there are.
inline constexpr std::int64_t kNotCounted = -1;

struct BatchLoss {
  double loss_sum = 0;  // over the batch's samples
  int samples = 0;
  // Of them, those whose label the model told in this very pass, dropout included; or kNotCounted.
  std::int64_t hits = kNotCounted;
};

// Of two parts' samples together.
constexpr std::int64_t addHits(std::int64_t one, std::int64_t other) {
  return one == kNotCounted || other == kNotCounted ? kNotCounted : one + other;
}
// The share of samples; nothing where it is not known.
constexpr std::optional<double> accuracyOf(std::int64_t hits, double samples) {
  if (hits == kNotCounted || samples <= 0) return std::nullopt;
  return static_cast<double>(hits) / samples;
}
struct BatchScore {
  std::int64_t hits = 0;
  std::int64_t samples = 0;
  double loss_sum = 0;
  ClickScores clicks = {};  // of models that tell clicks

  void add(const BatchScore& other) {
    hits += other.hits;
    samples += other.samples;
    loss_sum += other.loss_sum;
    clicks.add(other.clicks);
  }
};

}  // namespace trainyard::runtime
