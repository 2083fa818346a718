// A server's chunks and parts of tables at one version, for checkpoints.
#include <algorithm>
#include <utility>

#include "base/core/failpoint.h"
#include "runtime/placement/moves.h"
#include "runtime/ps/shard_updates.h"

namespace trainyard::runtime::ps {

bool Shard::arm(std::int64_t version, const DeltaBase& base) {
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
  if (rows_ != nullptr) pending.snapshot.base = base;
  pending.missing = holdings();
  pending.have.assign(holdings(), false);
  {
    std::lock_guard lock(snapshot_mutex_);
    pending_.push_back(std::move(pending));
  }
  if (std::any_of(chunks_.begin(), chunks_.end(),
                  [&](auto& chunk) { return beyond(*chunk, version); }))
    return false;
  return rows_ == nullptr || !rowsBeyond(version);
}

void Shard::forgetGoneBefore(std::int64_t version) {
  std::shared_lock epoch_lock(epoch_mutex_);
  if (rows_ != nullptr) rows_->forgetGoneBefore(version);
}

// What has left the version without having been copied: there will be no such snapshot.
bool Shard::forgoSnapshot(std::size_t holding, std::int64_t version) {
  std::lock_guard lock(snapshot_mutex_);
  const auto missed = std::erase_if(pending_, [&](const Pending& pending) {
    return pending.snapshot.version == version && !pending.have[holding];
  });
  if (missed > 0) missed_ = std::max(missed_, version);
  return missed > 0;
}

bool Shard::beyond(ChunkState& chunk, std::int64_t version) {
  const ChunkLock chunk_lock(chunk);
  if (chunk.version <= version) return false;
  return forgoSnapshot(static_cast<std::size_t>(slot_of_chunk_[chunk.plan->id]), version);
}

bool Shard::rowsBeyond(std::int64_t version) {
  bool missed = false;
  for (std::size_t at = 0; at < rows_->parts() && !missed; ++at) {
    rows_->withPart(at, [&](const rows::RowPart& part) {
      missed = part.version() > version && forgoSnapshot(chunks_.size() + at, version);
    });
  }
  return missed;
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
    if (captureAt(index)) return true;
  }
}

bool Shard::captureAt(std::size_t holding) {
  if (holding >= chunks_.size()) {
    bool captured = false;
    const std::size_t at = holding - chunks_.size();
    rows_->withPart(at, [&](const rows::RowPart& part) { captured = captureRows(at, part); });
    return captured;
  }
  ChunkState& chunk = *chunks_[holding];
  const ChunkLock chunk_lock(chunk);
  // What its replica lacks is copied when it has it.
  return mode_->canCapture(chunk) && capture(chunk);
}

bool Shard::wantsCopy(std::size_t holding, std::int64_t version) const {
  std::lock_guard lock(snapshot_mutex_);
  return std::any_of(pending_.begin(), pending_.end(), [&](const Pending& pending) {
    return pending.snapshot.version == version && !pending.have[holding];
  });
}

DeltaBase Shard::baseOf(std::int64_t version) const {
  std::lock_guard lock(snapshot_mutex_);
  const auto pending = std::ranges::find_if(
      pending_, [&](const Pending& one) { return one.snapshot.version == version; });
  return pending == pending_.end() ? DeltaBase{} : pending->snapshot.base;
}

// False: no snapshot wants it any more.
bool Shard::addToSnapshot(std::size_t holding, std::int64_t version,
                          const std::function<void(Snapshot&)>& add) {
  std::lock_guard lock(snapshot_mutex_);
  const auto pending = std::find_if(pending_.begin(), pending_.end(), [&](const Pending& one) {
    return one.snapshot.version == version && !one.have[holding];
  });
  if (pending == pending_.end()) return false;
  pending->have[holding] = true;
  add(pending->snapshot);
  if (--pending->missing == 0) {
    captured_ = std::max(captured_, version);
    progress_ = true;
  }
  return true;
}

// Called with the chunk's mutex held: its weights and slots are those of exactly `version`. False:
// no snapshot wants them.
bool Shard::capture(ChunkState& chunk) {
  const auto index = static_cast<std::size_t>(slot_of_chunk_[chunk.plan->id]);
  if (!wantsCopy(index, chunk.version)) return false;
  hitFailpoint("ps.capture", chunk.version);
  // Weights are never written once they are a version; slots are copied by the next update.
  Snapshot::ChunkCopy copy{chunk.plan->id, chunk.current, chunk.slots};
  return addToSnapshot(index, chunk.version,
                       [&](Snapshot& snapshot) { snapshot.chunks.push_back(std::move(copy)); });
}

// The same of a part of the tables.
bool Shard::captureRows(std::size_t at, const rows::RowPart& part) {
  const std::size_t holding = chunks_.size() + at;
  if (part.told() != part.version()) return false;  // what its replica lacks, when it has it
  if (!wantsCopy(holding, part.version())) return false;
  hitFailpoint("ps.capture.rows", part.version());
  const DeltaBase base = baseOf(part.version());
  std::vector<LateRows> pieces =
      rows_->snapshot(at, base.any() ? std::optional(base.version) : std::nullopt);
  return addToSnapshot(holding, part.version(), [&](Snapshot& snapshot) {
    std::ranges::move(pieces, std::back_inserter(snapshot.tables));
  });
}

std::optional<Snapshot> Shard::takeSnapshot() {
  std::lock_guard lock(snapshot_mutex_);
  for (auto it = pending_.begin(); it != pending_.end(); ++it) {
    if (it->missing > 0) continue;
    Snapshot snapshot = std::move(it->snapshot);
    pending_.erase(it);
    std::sort(snapshot.chunks.begin(), snapshot.chunks.end(),
              [](const auto& a, const auto& b) { return a.chunk < b.chunk; });
    std::sort(snapshot.tables.begin(), snapshot.tables.end(), [](const auto& a, const auto& b) {
      return std::pair(a.table, a.first) < std::pair(b.table, b.first);
    });
    return snapshot;
  }
  return std::nullopt;
}

}  // namespace trainyard::runtime::ps
