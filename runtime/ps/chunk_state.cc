#include "runtime/ps/chunk_state.h"

#include <algorithm>

#include "base/core/check.h"
#include "base/core/strings.h"

namespace trainyard::runtime::ps {

void ChunkState::resetStep(int ranks) {
  sum = nullptr;
  pushed.assign(static_cast<std::size_t>(ranks), false);
  waiting.clear();
  waiting.resize(static_cast<std::size_t>(ranks));
  losses.assign(static_cast<std::size_t>(ranks), 0.0);
  added = 0;
  samples = 0;
  parked.clear();
}

bool ChunkState::complete() const {
  return added == static_cast<int>(pushed.size());
}

void ChunkState::add(const GradientPayload& payload) {
  if (added > 0) {
    payload.addTo(*sum);
  } else {
    // The first gradient takes the memory of the oldest version, unless an answer still sends it.
    if (previous != nullptr && previous.use_count() == 1) {
      sum = std::move(previous);
    } else {
      sum = std::make_shared<Weights>(static_cast<std::size_t>(plan->elements));
    }
    previous = nullptr;
    payload.copyTo(*sum);
  }
  ++added;
}

void ChunkState::contribute(std::uint32_t rank, std::unique_ptr<GradientPayload> payload,
                            bool in_rank_order) {
  TY_CHECK(!pushed[rank], "a rank's gradient is added once");
  pushed[rank] = true;
  if (!in_rank_order) {
    add(*payload);
    return;
  }
  waiting[rank] = std::move(payload);
  while (added < static_cast<int>(waiting.size())) {
    auto& next = waiting[static_cast<std::size_t>(added)];
    if (next == nullptr) break;
    add(*next);
    next = nullptr;
  }
}

std::string ChunkState::missingRanks() const {
  std::vector<std::string> missing;
  for (std::size_t rank = 0; rank < pushed.size(); ++rank) {
    if (!pushed[rank]) missing.push_back(std::to_string(rank));
  }
  return join(missing, ",");
}

}  // namespace trainyard::runtime::ps
