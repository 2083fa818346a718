// Chunks that change their server between two epochs.
#include <cstring>
#include <utility>

#include "base/core/check.h"
#include "fmt/format.h"
#include "runtime/placement/moves.h"
#include "runtime/ps/shard.h"

namespace trainyard::runtime::ps {
namespace {

void putFloats(std::string* bytes, const std::vector<float>& values) {
  bytes->assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

std::vector<float> getFloats(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

std::shared_ptr<Weights> getWeights(const std::string& bytes) {
  return bytes.empty() ? nullptr : std::make_shared<Weights>(getFloats(bytes));
}

// Why `contents` cannot be a chunk of so many elements, or "".
std::string misfit(const v1::ChunkContents& contents, std::int64_t elements, std::size_t slots) {
  const std::size_t expected = static_cast<std::size_t>(elements) * sizeof(float);
  const auto fits = [&](const std::string& bytes) { return bytes.size() == expected; };
  if (contents.version() < 0) return "it has no version";
  if (!fits(contents.weights())) {
    return fmt::format("{} bytes of weights, expected {}", contents.weights().size(), expected);
  }
  if (static_cast<std::size_t>(contents.slots_size()) != slots)
    return fmt::format("{} optimizer slots, expected {}", contents.slots_size(), slots);
  for (const std::string& slot : contents.slots()) {
    if (!fits(slot)) return fmt::format("{} bytes of a slot, expected {}", slot.size(), expected);
  }
  if (!contents.previous().empty() && !fits(contents.previous()))
    return "the former version has another size";
  if (contents.added() < 0 || contents.added() > contents.losses_size() ||
      (contents.added() > 0 && !fits(contents.sum()))) {
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
    if (state == nullptr) state = std::make_unique<ChunkState>(chunk, config_.asynchronous);
    slot_of_chunk_[chunk.id] = static_cast<std::int32_t>(chunks_.size());
    chunks_.push_back(std::move(state));
    bytes += static_cast<std::uint64_t>(chunk.elements) * sizeof(float);
  }
  aside_ = std::move(held);
  parameter_bytes_ = bytes;
  norm_.setChunks(chunks_.size(), chunks_.size() == placement_.chunks.size());
}

void Shard::assign(const std::vector<int>& ps_of_chunk) {
  TY_CHECK(ps_of_chunk.size() == placement_.chunks.size(), "a map of this job's chunks");
  AllExcluded epoch_lock(*this);
  TY_CHECK(!open_, "chunks change hands while nobody computes");
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

StatusOr<v1::ChunkContents> Shard::give(std::int64_t epoch, std::uint32_t id,
                                        std::int64_t known) const {
  std::shared_lock epoch_lock(epoch_mutex_);
  if (epoch != epoch_ || released_) {
    return absl::FailedPreconditionError(fmt::format("{} gives no chunk for epoch {}, it is in {}",
                                                     serverName(config_.ps), epoch, epoch_));
  }
  const auto given = aside_.find(id);
  ChunkState* chunk = given != aside_.end() ? given->second.get() : find(id);
  if (chunk == nullptr || chunk->version < 0) chunk = findReplica(id);
  if (chunk == nullptr || chunk->version < 0)
    return absl::NotFoundError(
        fmt::format("{} does not hold chunk {}", serverName(config_.ps), id));
  const ChunkLock chunk_lock(*chunk);
  v1::ChunkContents contents;
  contents.set_version(chunk->version);
  if (known == pointOf(*chunk)) return contents;
  putFloats(contents.mutable_weights(), *chunk->current);
  if (chunk->previous != nullptr) putFloats(contents.mutable_previous(), *chunk->previous);
  for (const std::vector<float>& slot : chunk->slots) putFloats(contents.add_slots(), slot);
  contents.set_last_samples(chunk->last_samples);
  contents.set_last_loss_sum(chunk->last_loss_sum);
  if (chunk->last_norm) contents.set_last_norm(*chunk->last_norm);
  contents.set_previous_samples(chunk->previous_samples);
  contents.set_previous_loss_sum(chunk->previous_loss_sum);
  if (!config_.asynchronous) return contents;
  if (chunk->added > 0) putFloats(contents.mutable_sum(), *chunk->sum);
  contents.set_added(chunk->added);
  contents.set_samples(chunk->samples);
  contents.mutable_losses()->Add(chunk->losses.begin(), chunk->losses.end());
  for (const auto& [worker, push] : chunk->applied) {
    v1::AppliedPush* applied = contents.add_applied();
    applied->set_worker(worker);
    applied->mutable_incarnation()->set_created(std::get<0>(push));
    applied->mutable_incarnation()->set_start(std::get<1>(push));
    applied->set_push(std::get<2>(push));
  }
  chunk->pushed_tickets.write(*contents.mutable_pushed_tickets());
  chunk->pushed_samples.write(*contents.mutable_pushed_samples());
  return contents;
}

Status Shard::takeOver(std::uint32_t id, const v1::ChunkContents& contents) {
  AllExcluded epoch_lock(*this);
  TY_CHECK(!open_, "chunks change hands while nobody computes");
  ChunkState* chunk = find(id) != nullptr ? find(id) : findReplica(id);
  TY_CHECK(chunk != nullptr, "a server takes over what is its own, or a replica");
  const bool known = contents.weights().empty() && chunk->plan->elements > 0;
  if (known && chunk->version >= 0 && contents.version() == chunk->version) return absl::OkStatus();
  const ChunkLock chunk_lock(*chunk);
  const std::string wrong = misfit(contents, chunk->plan->elements, optimizer_.slots().size());
  if (!wrong.empty()) {
    return absl::InvalidArgumentError(
        fmt::format("{}: chunk {}: {}", serverName(config_.ps), id, wrong));
  }
  chunk->version = contents.version();
  chunk->current = getWeights(contents.weights());
  chunk->previous = getWeights(contents.previous());
  chunk->slots.clear();
  for (const std::string& slot : contents.slots()) chunk->slots.push_back(getFloats(slot));
  chunk->resetStep(contents.losses_size());
  chunk->last_samples = contents.last_samples();
  chunk->last_loss_sum = contents.last_loss_sum();
  chunk->last_norm.reset();
  if (contents.has_last_norm()) chunk->last_norm = contents.last_norm();
  chunk->previous_samples = contents.previous_samples();
  chunk->previous_loss_sum = contents.previous_loss_sum();
  chunk->sum = contents.added() > 0 ? getWeights(contents.sum()) : nullptr;
  chunk->added = contents.added();
  chunk->samples = contents.samples();
  for (int i = 0; i < contents.losses_size(); ++i) {
    chunk->losses[static_cast<std::size_t>(i)] = contents.losses(i);
    chunk->pushed[static_cast<std::size_t>(i)] = i < contents.added();
  }
  chunk->applied.clear();
  for (const v1::AppliedPush& push : contents.applied()) {
    chunk->applied[push.worker()] = {push.incarnation().created(), push.incarnation().start(),
                                     push.push()};
  }
  chunk->pushed_tickets = NumberSet(contents.pushed_tickets());
  chunk->pushed_samples = NumberSet(contents.pushed_samples());
  return absl::OkStatus();
}

void Shard::release() {
  AllExcluded epoch_lock(*this);
  if (!open_) return;
  released_ = true;
  aside_.clear();
  std::erase_if(replicas_, [&](const auto& r) { return !wanted_replicas_.contains(r.first); });
}

}  // namespace trainyard::runtime::ps
