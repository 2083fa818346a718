#include "runtime/ps/chunk_state.h"

#include <algorithm>
#include <utility>

#include "base/core/check.h"
#include "base/core/strings.h"

namespace trainyard::runtime::ps {

std::shared_ptr<Weights> makeWeights(std::size_t elements, const WeightsMemory& memory) {
  if (memory == nullptr) return std::make_shared<Weights>(elements);
  struct Owned {
    Owned(std::size_t elements, WeightsMemory from)
        : memory(std::move(from)), weights(elements, memory.get()) {}
    const WeightsMemory memory;  // outlives what it gave
    Weights weights;
  };
  const auto owned = std::make_shared<Owned>(elements, memory);
  return {owned, &owned->weights};
}

std::size_t gradientBytes(const Chunk& chunk, const GradientPayload* payload) {
  return static_cast<std::size_t>(chunk.elements) *
         (payload == nullptr ? sizeof(float) : payload->elementBytes());
}

void ChunkState::resetStep(int ranks) {
  sum = nullptr;
  kept.clear();
  pushed.assign(static_cast<std::size_t>(ranks), false);
  waiting.clear();
  waiting.resize(static_cast<std::size_t>(ranks));
  losses.assign(static_cast<std::size_t>(ranks), 0.0);
  added = 0;
  samples = 0;
  hits = 0;
  parked.clear();
}

bool ChunkState::complete() const {
  return added == static_cast<int>(pushed.size());
}

void ChunkState::beginSum(const WeightsMemory& memory) {
  const bool free = previous != nullptr && previous.use_count() == 1;
  if (free && (memory == nullptr || previous->get_allocator().resource() == memory.get())) {
    sum = std::move(previous);
  } else {
    sum = makeWeights(static_cast<std::size_t>(plan->elements), memory);
  }
  previous = nullptr;
}

void ChunkState::sumBlock(std::span<float> block, std::size_t at) const {
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (i == 0) {
      kept[i]->copyTo(block, at);
    } else {
      kept[i]->addTo(block, at);
    }
  }
}

void ChunkState::add(std::unique_ptr<GradientPayload> payload, const WeightsMemory& memory) {
  if (!sums_early) {
    kept.push_back(std::move(payload));
  } else if (added > 0) {
    payload->addTo(*sum, 0);
  } else {
    beginSum(memory);
    payload->copyTo(*sum, 0);
  }
  ++added;
}

void ChunkState::contribute(std::uint32_t rank, std::unique_ptr<GradientPayload> payload,
                            bool in_rank_order, const WeightsMemory& memory) {
  TY_CHECK(!pushed[rank], "a rank's gradient is added once");
  pushed[rank] = true;
  if (!in_rank_order) return add(std::move(payload), memory);
  waiting[rank] = std::move(payload);
  while (added < static_cast<int>(waiting.size())) {
    auto& next = waiting[static_cast<std::size_t>(added)];
    if (next == nullptr) break;
    add(std::exchange(next, nullptr), memory);
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
