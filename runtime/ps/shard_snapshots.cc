// Copies of a server's chunks at one version, for checkpoints.
#include <algorithm>
#include <utility>

#include "base/core/failpoint.h"
#include "runtime/placement/moves.h"
#include "runtime/ps/shard_updates.h"

namespace trainyard::runtime::ps {

bool Shard::arm(std::int64_t version) {
  if (config_.ps == kWorkerKeeper) return true;  // nothing here is its own
  std::shared_lock epoch_lock(epoch_mutex_);
  if (!open_) return false;
  {
    std::lock_guard lock(snapshot_mutex_);
    // Asked late for what the coordinator knows to be copied: pushes go on meanwhile.
    if (mode_->hasCaptured(version)) return true;
    for (const Pending& pending : pending_) {
      if (pending.snapshot.version == version) return true;
    }
  }
  mode_->settle(version);
  Pending pending;
  pending.snapshot.epoch = epoch_;
  pending.snapshot.version = version;
  pending.missing = chunks_.size();
  pending.have.assign(chunks_.size(), false);
  {
    std::lock_guard lock(snapshot_mutex_);
    pending_.push_back(std::move(pending));
  }
  return std::none_of(chunks_.begin(), chunks_.end(),
                      [&](auto& chunk) { return beyond(*chunk, version); });
}

// The chunk has left the version without having been copied: there will be no such snapshot.
bool Shard::beyond(ChunkState& chunk, std::int64_t version) {
  const ChunkLock chunk_lock(chunk);
  if (chunk.version <= version) return false;
  std::lock_guard lock(snapshot_mutex_);
  const auto index = static_cast<std::size_t>(slot_of_chunk_[chunk.plan->id]);
  const auto missed = std::erase_if(pending_, [&](const Pending& pending) {
    return pending.snapshot.version == version && !pending.have[index];
  });
  if (missed > 0) missed_ = std::max(missed_, version);
  return missed > 0;
}

bool Shard::captureNext() {
  if (excluders_ > 0) return false;
  std::shared_lock epoch_lock(epoch_mutex_);
  for (;;) {
    std::size_t index = 0;
    {
      std::lock_guard lock(snapshot_mutex_);
      const auto next = std::find_if(pending_.begin(), pending_.end(), [&](const Pending& pending) {
        return pending.looked < pending.have.size();
      });
      if (next == pending_.end()) return false;
      index = next->looked++;
    }
    ChunkState& chunk = *chunks_[index];
    const ChunkLock chunk_lock(chunk);
    // What its replica lacks is copied when it has it.
    if (mode_->canCapture(chunk) && capture(chunk)) return true;
  }
}

// Called with the chunk's mutex held: its weights and slots are those of exactly `version`. False:
// no snapshot wants them.
bool Shard::capture(ChunkState& chunk) {
  const auto index = static_cast<std::size_t>(slot_of_chunk_[chunk.plan->id]);
  const auto wanting = [&] {
    return std::find_if(pending_.begin(), pending_.end(), [&](const Pending& pending) {
      return pending.snapshot.version == chunk.version && !pending.have[index];
    });
  };
  {
    std::lock_guard lock(snapshot_mutex_);
    if (wanting() == pending_.end()) return false;
  }
  hitFailpoint("ps.capture", chunk.version);
  // Weights are never written once they are a version; slots are updated in place.
  Snapshot::ChunkCopy copy{chunk.plan->id, chunk.current, chunk.slots};
  std::lock_guard lock(snapshot_mutex_);
  const auto pending = wanting();
  if (pending == pending_.end()) return false;
  pending->have[index] = true;
  pending->snapshot.chunks.push_back(std::move(copy));
  if (--pending->missing == 0) {
    captured_ = std::max(captured_, chunk.version);
    progress_ = true;
  }
  return true;
}

std::optional<Snapshot> Shard::takeSnapshot() {
  std::lock_guard lock(snapshot_mutex_);
  for (auto it = pending_.begin(); it != pending_.end(); ++it) {
    if (it->missing > 0) continue;
    Snapshot snapshot = std::move(it->snapshot);
    pending_.erase(it);
    std::sort(snapshot.chunks.begin(), snapshot.chunks.end(),
              [](const auto& a, const auto& b) { return a.chunk < b.chunk; });
    return snapshot;
  }
  return std::nullopt;
}

}  // namespace trainyard::runtime::ps
