// Clipping by global norm: no chunk of a step is updated before the means of all are known.
#include "base/core/check.h"
#include "runtime/ps/shard_updates.h"
#include "runtime/tensor/kernels.h"
#include "runtime/tensor/square_sum.h"

namespace trainyard::runtime::ps {

// Called with the chunk's mutex held: its sum is complete. The mean stays in the sum's memory, the
// weights at their version, until updateHeld().
void Shard::StepUpdates::holdStep(ChunkState& chunk, Answers& out) {
  for (std::int64_t at = 0; at < chunk.plan->elements; at += kUpdateBlock) {
    if (!shard_.averageBlock(chunk, at, out)) return;
  }
  SquareSum squares;
  squares.add(*chunk.sum);
  shard_.norm_.add(static_cast<std::size_t>(shard_.slot_of_chunk_[chunk.plan->id]), chunk.version,
                   squares);
}

void Shard::setNorm(std::int64_t epoch, std::int64_t step, double norm) {
  std::shared_lock epoch_lock(epoch_mutex_);
  if (open_ && epoch == epoch_) norm_.setNorm(step, norm);
}

bool Shard::updateNext(std::vector<ChunkAnswer>& out) {
  if (!norm_.clips()) return false;
  std::shared_lock epoch_lock(epoch_mutex_);
  return mode_->updateHeld(out);
}

bool Shard::StepUpdates::updateHeld(Answers& out) {
  const std::optional<StepNorm::Update> update = shard_.norm_.next();
  if (!update) return false;
  ChunkState& chunk = *shard_.chunks_[update->chunk];
  const ChunkLock chunk_lock(chunk);
  TY_CHECK(chunk.sum != nullptr && chunk.complete(), "a chunk that waits for the norm has a mean");
  shard_.capture(chunk);
  if (update->scale != 1) scaleFloats(*chunk.sum, update->scale);
  const UpdateContext context{chunk.version, shard_.learning_rate_.at(chunk.version)};
  shard_.prepareMean(chunk);
  for (std::int64_t at = 0; at < chunk.plan->elements; at += kUpdateBlock) {
    shard_.keepMean(chunk, at);
    shard_.updateBlock(chunk, context, at);
  }
  chunk.last_norm = update->norm;
  becomeNext(chunk, out);
  return true;
}

}  // namespace trainyard::runtime::ps
