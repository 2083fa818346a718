#include "runtime/ps/shared_payloads.h"

#include <algorithm>

namespace trainyard::runtime::ps {

SharedPayloads::Block* SharedPayloads::take(std::uint32_t chunk, std::uint64_t attempt,
                                            std::size_t elements) {
  const std::lock_guard lock(mutex_);
  Block& block = blocks_[chunk];
  if (block.taken || attempt < block.attempt) return nullptr;
  block.attempt = attempt;
  if (block.values == nullptr || block.values->size() != elements)
    block.values = makeWeights(elements, pool_);
  block.taken = true;
  return &block;
}

void SharedPayloads::giveBack(Block& block) {
  const std::lock_guard lock(mutex_);
  block.taken = false;
}

std::optional<v1::SharedPlace> SharedPayloads::place(std::uint32_t chunk, std::uint64_t attempt,
                                                     const std::vector<PayloadPiece>& payload) {
  if (payload.size() == 1) {
    if (auto there = pool_->placeOf(std::as_bytes(payload[0].values))) return there;
  }
  std::size_t elements = 0;
  for (const PayloadPiece& piece : payload) elements += piece.values.size();
  Block* const block = take(chunk, attempt, elements);
  if (block == nullptr) return std::nullopt;
  auto place = pool_->placeOf(std::as_bytes(std::span<const float>(*block->values)));
  if (place) {
    auto at = block->values->begin();
    for (const PayloadPiece& piece : payload)
      at = std::copy(piece.values.begin(), piece.values.end(), at);
  }
  giveBack(*block);
  return place;
}

}  // namespace trainyard::runtime::ps
