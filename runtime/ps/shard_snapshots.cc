// Copies of a server's chunks at one version, for checkpoints.
#include <algorithm>
#include <utility>

#include "runtime/placement/moves.h"
#include "runtime/ps/shard.h"

namespace trainyard::runtime::ps {

bool Shard::arm(std::int64_t version) {
  if (config_.ps == kWorkerKeeper) return true;  // nothing here is its own
  std::shared_lock epoch_lock(epoch_mutex_);
  if (!open_) return false;
  {
    std::lock_guard lock(snapshot_mutex_);
    // Asked late for what the coordinator knows to be copied: pushes go on meanwhile.
    if (config_.asynchronous && version <= captured_) return true;
    for (const Pending& pending : pending_) {
      if (pending.snapshot.version == version) return true;
    }
    Pending pending;
    pending.snapshot.epoch = epoch_;
    pending.snapshot.version = version;
    pending.missing = chunks_.size();
    pending.have.assign(chunks_.size(), false);
    pending_.push_back(std::move(pending));
  }
  for (auto& chunk : chunks_) {
    std::lock_guard chunk_lock(chunk->mutex);
    if (config_.asynchronous) settle(*chunk, version);
    if (chunk->version > version) {
      std::lock_guard lock(snapshot_mutex_);
      std::erase_if(pending_, [&](const Pending& p) { return p.snapshot.version == version; });
      missed_ = std::max(missed_, version);
      return false;
    }
    if (config_.asynchronous || !chunk->unconfirmed) capture(*chunk);
  }
  return true;
}

// Called with the chunk's mutex held: its weights and slots are those of exactly `version`.
void Shard::capture(ChunkState& chunk) {
  std::lock_guard lock(snapshot_mutex_);
  const auto index = static_cast<std::size_t>(slot_of_chunk_[chunk.plan->id]);
  for (Pending& pending : pending_) {
    if (pending.snapshot.version != chunk.version || pending.have[index]) continue;
    pending.have[index] = true;
    if (--pending.missing == 0) captured_ = std::max(captured_, chunk.version);
    pending.snapshot.chunks.push_back({chunk.plan->id, *chunk.current, chunk.slots});
  }
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
