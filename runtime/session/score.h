// What a program found when it evaluated, and its bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/core/status.h"
#include "runtime/data/click_scores.h"

namespace trainyard::runtime::session {

struct Score {
  std::int64_t hits = 0;
  std::int64_t samples = 0;
  double loss_sum = 0;
  ClickScores clicks = {};  // of programs that tell clicks: of no more than `samples`

  void add(const Score& other) {
    hits += other.hits;
    samples += other.samples;
    loss_sum += other.loss_sum;
    clicks.add(other.clicks);
  }
};

std::string encode(const Score& score);
StatusOr<Score> decodeScore(std::string_view body);

// Samples by their logits and their labels, 0 or 1: a hit has a logit above 0 with 1, another one
// with 0; the loss is log loss. INVALID_ARGUMENT names the first that is no such label, or not
// finite.
StatusOr<Score> scoreOfClicks(std::span<const float> logits, std::span<const std::uint8_t> labels);

}  // namespace trainyard::runtime::session
