// Chunks that change their server between two epochs.
#include <algorithm>
#include <utility>

#include "base/core/check.h"
#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/placement/moves.h"
#include "runtime/ps/shard_updates.h"

namespace trainyard::runtime::ps {
namespace {

// Why `given` cannot be a chunk of so many elements, or "".
std::string misfit(const GivenChunk& given, std::int64_t elements, std::size_t slots) {
  const auto expected = static_cast<std::size_t>(elements);
  const auto fits = [&](const std::shared_ptr<Weights>& array) {
    return array != nullptr && array->size() == expected;
  };
  if (given.version < 0) return "it has no version";
  if (!fits(given.weights)) {
    const std::size_t bytes = given.weights == nullptr ? 0 : given.weights->size() * sizeof(float);
    return fmt::format("{} bytes of weights, expected {}", bytes, expected * sizeof(float));
  }
  if (given.slots.size() != slots)
    return fmt::format("{} optimizer slots, expected {}", given.slots.size(), slots);
  for (const std::vector<float>& slot : given.slots) {
    if (slot.size() != expected)
      return fmt::format("{} elements of a slot, expected {}", slot.size(), expected);
  }
  if (given.previous != nullptr && !fits(given.previous))
    return "the former version has another size";
  const v1::ChunkRecord& record = given.record;
  if (record.added() < 0 || record.added() > record.losses_size() ||
      (record.added() > 0 && !fits(given.sum))) {
    return "a sum of another size";
  }
  return "";
}

}  // namespace

// With the epoch's mutex held, or by the constructor. What of `held` is not this server's stays
// aside.
void Shard::setOwn(std::map<std::uint32_t, std::unique_ptr<ChunkState>> held,
                   const std::vector<int>& ps_of_chunk) {
  chunks_.clear();
  aside_.clear();
  slot_of_chunk_.assign(placement_.chunks.size(), -1);
  std::uint64_t bytes = 0;
  for (const Chunk& chunk : placement_.chunks) {
    if (ps_of_chunk[chunk.id] != config_.ps) continue;
    std::unique_ptr<ChunkState> state = std::move(held[chunk.id]);
    held.erase(chunk.id);
    if (state == nullptr) state = mode_->makeChunk(chunk);
    slot_of_chunk_[chunk.id] = static_cast<std::int32_t>(chunks_.size());
    chunks_.push_back(std::move(state));
    bytes += static_cast<std::uint64_t>(chunk.elements) * sizeof(float);
  }
  aside_ = std::move(held);
  parameter_bytes_ = bytes;
  norm_.setChunks(chunks_.size(), chunks_.size() == placement_.chunks.size());
}

void Shard::assign(const std::vector<int>& ps_of_chunk) {
  const std::size_t parts =
      ps_of_chunk.size() - std::min(ps_of_chunk.size(), placement_.chunks.size());
  TY_CHECK(parts == (rows_ == nullptr ? 0 : rows_->partsOfJob()), "a map of this job's chunks");
  AllExcluded epoch_lock(*this);
  TY_CHECK(!open_, "chunks change hands while nobody computes");
  if (rows_ != nullptr)
    rows_->assign({ps_of_chunk.end() - static_cast<std::ptrdiff_t>(parts), ps_of_chunk.end()});
  bool same = true;
  for (const Chunk& chunk : placement_.chunks)
    same = same && (slot_of_chunk_[chunk.id] >= 0) == (ps_of_chunk[chunk.id] == config_.ps);
  if (same) return;
  std::map<std::uint32_t, std::unique_ptr<ChunkState>> held = std::move(aside_);
  for (auto& chunk : chunks_) {
    const std::uint32_t id = chunk->plan->id;
    if (chunk->version >= 0) held[id] = std::move(chunk);
  }
  setOwn(std::move(held), ps_of_chunk);
  holds_global_step_ = withChunksAt(placement_, ps_of_chunk).globalStepPs() == config_.ps;
}

Status Shard::checkMeant(const v1::FetchChunkRequest& request) const {
  const bool meant = request.job_uid() == config_.job_uid &&
                     request.server().created() == config_.self.created() &&
                     request.server().start() == config_.self.start();
  if (meant) return absl::OkStatus();
  return absl::FailedPreconditionError("meant for another job or incarnation of this server");
}

Status Shard::checkGives(std::int64_t epoch) const {
  if (epoch == epoch_ && !released_) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format("{} gives no chunk for epoch {}, it is in {}",
                                                   serverName(config_.ps), epoch, epoch_));
}

namespace {

std::int64_t knownOf(const v1::FetchChunkRequest& request) {
  return request.has_known_version() ? request.known_version() : -1;
}

}  // namespace

StatusOr<rows::GivenPart> Shard::givePart(const v1::FetchChunkRequest& request) const {
  TY_RETURN_IF_ERROR(checkMeant(request));
  if (request.has_follows())
    return giveFollower(request.epoch(), request.chunk(), request.follower(), request.follows());
  return givePart(request.epoch(), request.chunk(), knownOf(request));
}

StatusOr<rows::GivenPart> Shard::giveFollower(std::int64_t epoch, std::uint32_t part, int follower,
                                              std::uint64_t mark) const {
  std::shared_lock epoch_lock(epoch_mutex_);
  if (epoch != epoch_) return checkGives(epoch);
  return rows_->giveFollower(part, follower, mark, [&] { epoch_lock.unlock(); });
}

StatusOr<rows::GivenPart> Shard::givePart(std::int64_t epoch, std::uint32_t part,
                                          std::int64_t known) const {
  std::shared_lock epoch_lock(epoch_mutex_);
  TY_RETURN_IF_ERROR(checkGives(epoch));
  return rows_->give(part, known);
}

Status Shard::takeOverPart(std::uint32_t part, rows::GivenPart given) {
  TY_CHECK(isPart(part), "a part of this job's tables");
  StatusOr<RowShard::Unpacked> unpacked = rows_->unpack(part, std::move(given));
  if (!unpacked.ok()) return annotate(unpacked.status(), serverName(config_.ps));
  AllExcluded epoch_lock(*this);
  TY_CHECK(!open_, "parts change hands while nobody computes");
  return annotate(rows_->takeOver(part, *std::move(unpacked)), serverName(config_.ps));
}

void Shard::copyParts(const std::vector<std::uint32_t>& parts,
                      std::map<std::uint32_t, std::set<int>> followers) {
  if (rows_ == nullptr) return;
  AllExcluded epoch_lock(*this);
  TY_CHECK(!open_, "what is copied changes while nobody computes");
  rows_->copy(parts, std::move(followers));
}

Status Shard::takeOverCopy(std::int64_t epoch, std::uint32_t part, rows::GivenPart given,
                           const v1::Incarnation& of) {
  StatusOr<RowShard::Unpacked> unpacked = rows_->unpack(part, std::move(given));
  if (!unpacked.ok()) return annotate(unpacked.status(), serverName(config_.ps));
  std::shared_lock epoch_lock(epoch_mutex_);
  if (epoch != epoch_ || !open_) return absl::CancelledError("the epoch has ended");
  return annotate(rows_->takeOver(part, *std::move(unpacked), &of), serverName(config_.ps));
}

std::uint64_t Shard::copyMark(std::uint32_t part, const v1::Incarnation& of) const {
  std::shared_lock epoch_lock(epoch_mutex_);
  return rows_ == nullptr ? 0 : rows_->markOf(part, of);
}

StatusOr<GivenChunk> Shard::give(const v1::FetchChunkRequest& request) const {
  TY_RETURN_IF_ERROR(checkMeant(request));
  return give(request.epoch(), request.chunk(), knownOf(request));
}

StatusOr<GivenChunk> Shard::give(std::int64_t epoch, std::uint32_t id, std::int64_t known) const {
  std::shared_lock epoch_lock(epoch_mutex_);
  TY_RETURN_IF_ERROR(checkGives(epoch));
  const auto given = aside_.find(id);
  ChunkState* chunk = given != aside_.end() ? given->second.get() : find(id);
  if (chunk == nullptr || chunk->version < 0) chunk = findReplica(id);
  if (chunk == nullptr || chunk->version < 0)
    return absl::NotFoundError(
        fmt::format("{} does not hold chunk {}", serverName(config_.ps), id));
  const ChunkLock chunk_lock(*chunk);
  GivenChunk all{chunk->version};
  if (known == mode_->pointOf(*chunk)) return all;
  all.weights = chunk->current;
  all.previous = chunk->previous;
  all.slots = chunk->slots.arrays();
  v1::ChunkRecord& record = all.record;
  record.set_last_samples(chunk->last_step.samples);
  record.set_last_loss_sum(chunk->last_step.loss_sum);
  if (chunk->last_step.hits != kNotCounted) record.set_last_hits(chunk->last_step.hits);
  if (chunk->last_norm) record.set_last_norm(*chunk->last_norm);
  const StepTally& previous = chunk->previous_step;
  record.set_previous_samples(previous.samples);
  record.set_previous_loss_sum(previous.loss_sum);
  if (previous.hits != kNotCounted) record.set_previous_hits(previous.hits);
  mode_->give(*chunk, all);
  return all;
}

Status Shard::takeOver(std::uint32_t id, GivenChunk given) {
  AllExcluded epoch_lock(*this);
  TY_CHECK(!open_, "chunks change hands while nobody computes");
  ChunkState* chunk = find(id) != nullptr ? find(id) : findReplica(id);
  TY_CHECK(chunk != nullptr, "a server takes over what is its own, or a replica");
  const bool known = given.weights == nullptr;
  if (known && chunk->version >= 0 && given.version == chunk->version) return absl::OkStatus();
  const ChunkLock chunk_lock(*chunk);
  const std::string wrong = misfit(given, chunk->plan->elements, optimizer_.slots().size());
  if (!wrong.empty()) {
    return absl::InvalidArgumentError(
        fmt::format("{}: chunk {}: {}", serverName(config_.ps), id, wrong));
  }
  const v1::ChunkRecord& record = given.record;
  chunk->version = given.version;
  chunk->current = std::move(given.weights);
  chunk->previous = std::move(given.previous);
  chunk->slots = std::move(given.slots);
  chunk->last_step = {record.last_samples(), record.last_loss_sum(),
                      record.has_last_hits() ? record.last_hits() : kNotCounted};
  chunk->last_norm.reset();
  if (record.has_last_norm()) chunk->last_norm = record.last_norm();
  chunk->previous_step = {record.previous_samples(), record.previous_loss_sum(),
                          record.has_previous_hits() ? record.previous_hits() : kNotCounted};
  mode_->takeOver(*chunk, given);
  return absl::OkStatus();
}

void Shard::release() {
  AllExcluded epoch_lock(*this);
  if (!open_) return;
  released_ = true;
  aside_.clear();
  if (rows_ != nullptr) rows_->release();
  std::erase_if(replicas_, [&](const auto& r) { return !wanted_replicas_.contains(r.first); });
}

}  // namespace trainyard::runtime::ps
