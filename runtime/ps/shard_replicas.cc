// Second copies of chunks and parts: what a chunk's server sends, and what the replica's does with
// it.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/core/check.h"
#include "fmt/format.h"
#include "runtime/placement/moves.h"
#include "runtime/ps/shard_updates.h"

namespace trainyard::runtime::ps {

ChunkState* Shard::findReplica(std::uint32_t chunk) const {
  const auto found = replicas_.find(chunk);
  return found == replicas_.end() ? nullptr : found->second.get();
}

void Shard::replicate(const std::vector<std::uint32_t>& chunks, bool guarded,
                      const std::set<std::uint32_t>& unguarded) {
  AllExcluded epoch_lock(*this);
  TY_CHECK(!open_, "replicas change while nobody computes");
  guarded_ = guarded;
  wanted_replicas_.clear();
  std::vector<std::uint32_t> parts;
  for (const std::uint32_t id : chunks) {
    if (isPart(id)) {
      parts.push_back(id);
      continue;
    }
    wanted_replicas_.insert(id);
    TY_CHECK(find(id) == nullptr, "a replica is of another server's chunk");
    std::unique_ptr<ChunkState>& replica = replicas_[id];
    if (replica == nullptr) replica = mode_->makeChunk(placement_.chunks[id]);
  }
  if (rows_ != nullptr) rows_->replicate(parts, guarded, unguarded);
}

void Shard::dropReplicas() {
  AllExcluded epoch_lock(*this);
  if (open_) return;
  const bool had_parts = rows_ != nullptr && rows_->dropReplicas();
  if (replicas_.empty() && !had_parts) return;
  replicas_.clear();
  wanted_replicas_.clear();
  empty_ = true;
}

std::int64_t Shard::replicaVersion(std::uint32_t chunk) const {
  std::shared_lock epoch_lock(epoch_mutex_);
  if (isPart(chunk)) return rows_->point(chunk);
  const ChunkState* replica = findReplica(chunk);
  return replica == nullptr || replica->version < 0 ? -1 : mode_->pointOf(*replica);
}

void Shard::adoptReplicas() {
  AllExcluded epoch_lock(*this);
  TY_CHECK(!open_, "chunks change hands while nobody computes");
  for (auto& chunk : chunks_) {
    const ChunkState* replica = findReplica(chunk->plan->id);
    if (chunk->version >= 0 || replica == nullptr || replica->version < 0) continue;
    const ChunkLock chunk_lock(*chunk);
    chunk->version = replica->version;
    chunk->current = std::make_shared<Weights>(*replica->current);
    chunk->previous =
        replica->previous == nullptr ? nullptr : std::make_shared<Weights>(*replica->previous);
    chunk->slots = replica->slots;
    chunk->last_step = replica->last_step;
    chunk->last_norm = replica->last_norm;
    chunk->previous_step = replica->previous_step;
    mode_->adopt(*replica, *chunk);
  }
}

// With the chunk's mutex held: memory for the mean, of which no message holds a part any more.
void Shard::prepareMean(ChunkState& chunk) {
  if (!guarded_) return;
  const bool free = chunk.mean != nullptr && chunk.mean.use_count() == 1;
  if (free && (memory_ == nullptr || chunk.mean->get_allocator().resource() == memory_.get()))
    return;
  chunk.mean = makeWeights(static_cast<std::size_t>(chunk.plan->elements), memory_);
}

// The block at `at` of the mean, which the update is about to overwrite.
void Shard::keepMean(ChunkState& chunk, std::int64_t at) {
  if (!guarded_) return;
  const auto begin = static_cast<std::size_t>(at);
  const std::size_t count =
      std::min(chunk.sum->size() - begin, static_cast<std::size_t>(kUpdateBlock));
  std::memcpy(chunk.mean->data() + begin, chunk.sum->data() + begin, count * sizeof(float));
}

// The chunk's mean, and `header` says of what.
void Shard::sendToReplica(ChunkState& chunk, v1::ChunkRequestHeader header) {
  chunk.unconfirmed = true;
  header.set_replica(true);
  std::lock_guard lock(updates_mutex_);
  updates_.push_back({std::move(header), chunk.mean, {}});
}

std::vector<ReplicaUpdate> Shard::takeUpdates() {
  std::vector<ReplicaUpdate> updates;
  {
    std::lock_guard lock(updates_mutex_);
    updates = std::exchange(updates_, {});
  }
  if (rows_ == nullptr) return updates;
  for (RowReplicaUpdate& update : rows_->takeUpdates()) {
    update.header.set_job_uid(config_.job_uid);
    updates.push_back({std::move(update.header), nullptr, std::move(update.body)});
  }
  return updates;
}

void Shard::onReplicated(const v1::ChunkRequestHeader& update, std::vector<ChunkAnswer>& out) {
  std::shared_lock epoch_lock(epoch_mutex_);
  if (!open_ || update.epoch() != epoch_) return;
  if (isPart(update.chunk())) return rows_->onReplicated(update, out);
  ChunkState* chunk = find(update.chunk());
  if (chunk == nullptr) return;
  const ChunkLock chunk_lock(*chunk);
  if (!chunk->unconfirmed || !mode_->isNewest(*chunk, update)) return;
  chunk->unconfirmed = false;
  mode_->onReplicated(*chunk, out);
}

// The epoch is open and the request's own.
void Shard::applyReplica(const v1::ChunkRequestHeader& header,
                         std::unique_ptr<GradientPayload> payload, CallId call,
                         std::vector<ChunkAnswer>& out) {
  ChunkAnswer answer;
  answer.call = call;
  answer.header.set_chunk(header.chunk());
  answer.header.set_epoch(epoch_);
  ChunkState* chunk =
      wanted_replicas_.contains(header.chunk()) ? findReplica(header.chunk()) : nullptr;
  const std::size_t bytes =
      chunk == nullptr ? 0 : static_cast<std::size_t>(chunk->plan->elements) * sizeof(float);
  if (chunk == nullptr || payload == nullptr || payload->sizeBytes() != bytes) {
    answer.header.set_code(v1::CHUNK_WRONG_SERVER);
    answer.header.set_message(
        fmt::format("{} has no such replica of chunk {}", serverName(config_.ps), header.chunk()));
    return out.push_back(std::move(answer));
  }
  const ChunkLock chunk_lock(*chunk);
  const bool taken = mode_->takeAsReplica(*chunk, header, std::move(payload));
  answer.header.set_code(taken ? v1::CHUNK_OK : v1::CHUNK_GONE);
  answer.header.set_version(chunk->version);
  if (!taken) {
    answer.header.set_message(fmt::format("the replica of chunk {} is at version {}, not {}",
                                          header.chunk(), chunk->version, header.step()));
  }
  out.push_back(std::move(answer));
}

// What a coordinator needs when it decides from where an epoch starts.
void Shard::fillReplicas(v1::ShardState& state) const {
  for (const auto& [id, replica] : replicas_) {
    if (replica->version < 0) continue;
    v1::ChunkReplica* held = state.add_replicas();
    held->set_chunk(id);
    held->set_version(replica->version);
  }
  if (rows_ != nullptr) rows_->fillReplicas(state);
  const auto look = [&](const ChunkState& chunk) {
    if (!chunk.last_norm || (state.has_norm() && state.norm().step() >= chunk.version - 1)) return;
    state.mutable_norm()->set_step(chunk.version - 1);
    state.mutable_norm()->set_norm(*chunk.last_norm);
  };
  for (const auto& chunk : chunks_) look(*chunk);
  for (const auto& [id, replica] : replicas_) look(*replica);
}

}  // namespace trainyard::runtime::ps
