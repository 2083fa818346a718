// What a program found when it evaluated, and its bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/core/status.h"
#include "runtime/train/gradient.h"

namespace trainyard::runtime::session {

// Its clicks, of programs that tell them, are of no more than `samples`.
using Score = BatchScore;

std::string encode(const Score& score);
StatusOr<Score> decodeScore(std::string_view body);

// Samples by their logits and their labels, 0 or 1: a hit has a logit above 0 with 1, another one
// with 0; the loss is log loss. INVALID_ARGUMENT names the first that is no such label, or not
// finite.
StatusOr<Score> scoreOfClicks(std::span<const float> logits, std::span<const std::uint8_t> labels);

}  // namespace trainyard::runtime::session
