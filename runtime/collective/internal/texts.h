// Short texts from every rank to every rank.
#pragma once

#include <string>
#include <vector>

#include "runtime/collective/collective.h"

namespace trainyard::runtime::collective::internal {

// Those of all ranks, by rank. Two all-gathers: lengths first, then the texts, in whole int32.
StatusOr<std::vector<std::string>> gatherTexts(Collective& collective, const std::string& own);

}  // namespace trainyard::runtime::collective::internal
