// Short texts from every rank to every rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/collective/collective.h"

namespace trainyard::runtime::collective::internal {

// Longest text of a rank. The longest that are sent, plans of what is reduced together (one line
// for each tensor, and only where ranks differ), have some ten thousand lines then.
inline constexpr std::int64_t kMaxTextBytes = 1 << 20;

// Those of all ranks, by rank. Two all-gathers: lengths first, then the texts, in whole int32.
// DATA_LOSS, on all ranks alike, when one of them says that its text is longer than kMaxTextBytes
// or shorter than nothing; it is blamed.
StatusOr<std::vector<std::string>> gatherTexts(Collective& collective, const std::string& own);

}  // namespace trainyard::runtime::collective::internal
