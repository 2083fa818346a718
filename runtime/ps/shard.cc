#include "runtime/ps/shard.h"

#include <algorithm>
#include <cmath>

#include "base/core/check.h"
#include "fmt/format.h"
#include "runtime/placement/moves.h"
#include "runtime/tensor/kernels.h"

namespace trainyard::runtime::ps {
namespace {

ChunkAnswer refuse(CallId call, std::uint32_t chunk, v1::ChunkCode code, std::int64_t epoch,
                   std::string message) {
  ChunkAnswer answer;
  answer.call = call;
  answer.header.set_code(code);
  answer.header.set_chunk(chunk);
  answer.header.set_epoch(epoch);
  answer.header.set_message(std::move(message));
  return answer;
}

bool sameIncarnation(const v1::Incarnation& a, const v1::Incarnation& b) {
  return a.created() == b.created() && a.start() == b.start();
}

// The variable that the chunk's element belongs to.
std::string variableAt(const Placement& placement, const Chunk& chunk, std::int64_t element) {
  for (const Segment& segment : chunk.segments) {
    const std::int64_t length = segment.end - segment.begin;
    if (element < length)
      return placement.variables[static_cast<std::size_t>(segment.variable)].name;
    element -= length;
  }
  return "?";
}

std::span<float> blockOf(std::vector<float>& values, std::int64_t at) {
  const std::span<float> rest = std::span<float>(values).subspan(static_cast<std::size_t>(at));
  return rest.first(std::min(rest.size(), static_cast<std::size_t>(Shard::kUpdateBlock)));
}

}  // namespace

Shard::Shard(ShardConfig config, const Placement& placement, const Optimizer& optimizer,
             LearningRate learning_rate)
    : config_(std::move(config)),
      placement_(placement),
      optimizer_(optimizer),
      learning_rate_(learning_rate),
      last_chunk_(placement.chunks.empty() ? 0 : placement.chunks.back().id),
      slot_of_chunk_(placement.chunks.size(), -1),
      norm_(config_.clip_norm, 0, false) {
  std::vector<int> ps_of_chunk;
  for (const Chunk& chunk : placement.chunks) ps_of_chunk.push_back(chunk.ps);
  setOwn({}, ps_of_chunk);
  holds_global_step_ = placement.globalStepPs() == config_.ps;
}

ChunkAnswer Shard::answerWith(CallId call, const ChunkState& chunk, std::int64_t version,
                              std::shared_ptr<const Weights> weights) const {
  ChunkAnswer answer;
  answer.call = call;
  answer.header.set_code(v1::CHUNK_OK);
  answer.header.set_chunk(chunk.plan->id);
  answer.header.set_epoch(epoch_);
  answer.header.set_version(version);
  const bool newest = version == chunk.version;
  answer.header.set_samples(newest ? chunk.last_samples : chunk.previous_samples);
  answer.header.set_loss_sum(newest ? chunk.last_loss_sum : chunk.previous_loss_sum);
  if (newest && chunk.last_norm && chunk.plan->id == last_chunk_)
    answer.header.set_gradient_norm(*chunk.last_norm);
  answer.payload = std::move(weights);
  return answer;
}

ChunkState* Shard::find(std::uint32_t chunk) const {
  if (chunk >= slot_of_chunk_.size() || slot_of_chunk_[chunk] < 0) return nullptr;
  return chunks_[static_cast<std::size_t>(slot_of_chunk_[chunk])].get();
}

void Shard::onRequest(const v1::ChunkRequestHeader& header,
                      std::unique_ptr<GradientPayload> payload, CallId call, TimePoint now,
                      std::vector<ChunkAnswer>& out) {
  std::shared_lock epoch_lock(epoch_mutex_);
  const auto no = [&](v1::ChunkCode code, std::string message) {
    out.push_back(refuse(call, header.chunk(), code, epoch_, std::move(message)));
  };
  if (header.job_uid() != config_.job_uid)
    return no(v1::CHUNK_WRONG_SERVER, "another job's request");
  if (!sameIncarnation(header.server(), config_.self)) {
    return no(v1::CHUNK_WRONG_SERVER, "meant for another incarnation of this server");
  }
  if (!open_ || header.epoch() != epoch_) {
    return no(v1::CHUNK_WRONG_EPOCH,
              fmt::format("epoch {} is not open, the server is in {}", header.epoch(), epoch_));
  }
  if (header.replica()) return applyReplica(header, std::move(payload), call, out);
  ChunkState* chunk = find(header.chunk());
  if (chunk == nullptr) {
    return no(v1::CHUNK_WRONG_SERVER,
              fmt::format("chunk {} is not on {}", header.chunk(), serverName(config_.ps)));
  }
  const ChunkLock chunk_lock(*chunk);
  if (config_.asynchronous) {
    if (!header.pull_only()) return applyPush(*chunk, header, std::move(payload), call, now, out);
    out.push_back(answerWith(call, *chunk, chunk->version, chunk->current));
    return;
  }
  if (!header.pull_only()) return answerPush(*chunk, header, std::move(payload), call, now, out);
  if (header.step() == chunk->version && !chunk->unconfirmed) {
    out.push_back(answerWith(call, *chunk, chunk->version, chunk->current));
  } else if (header.step() == chunk->version - 1 && chunk->previous != nullptr) {
    out.push_back(answerWith(call, *chunk, chunk->version - 1, chunk->previous));
  } else {
    no(v1::CHUNK_GONE, fmt::format("version {} of chunk {} is not held, it is at {}", header.step(),
                                   header.chunk(), chunk->version));
  }
}

void Shard::answerPush(ChunkState& chunk, const v1::ChunkRequestHeader& header,
                       std::unique_ptr<GradientPayload> payload, CallId call, TimePoint now,
                       std::vector<ChunkAnswer>& out) {
  const auto no = [&](v1::ChunkCode code, std::string message) {
    out.push_back(refuse(call, header.chunk(), code, epoch_, std::move(message)));
  };
  if (chunk.unconfirmed && header.step() == chunk.version - 1)
    return park(chunk, header, call, now, out);
  if (header.step() == chunk.version - 1) {
    // Complete already, under an earlier epoch or by the call that this one repeats.
    out.push_back(answerWith(call, chunk, chunk.version, chunk.current));
    return;
  }
  if (header.step() == chunk.version - 2 && chunk.previous != nullptr) {
    // A rank that had no part in the step after this one, which is complete as well.
    out.push_back(answerWith(call, chunk, chunk.version - 1, chunk.previous));
    return;
  }
  if (header.step() != chunk.version || header.step() >= plan_.steps) {
    return no(v1::CHUNK_GONE,
              fmt::format("step {} of chunk {} cannot be taken, it is at version {}", header.step(),
                          header.chunk(), chunk.version));
  }
  if (header.rank() >= static_cast<std::uint32_t>(plan_.ranks)) {
    return no(v1::CHUNK_WRONG_EPOCH, fmt::format("rank {} of {}", header.rank(), plan_.ranks));
  }
  const std::uint32_t rank = header.rank();
  const bool takes_part = rank < chunk.pushed.size();
  const std::size_t expected = static_cast<std::size_t>(chunk.plan->elements) * sizeof(float);
  if (takes_part && (payload == nullptr || payload->sizeBytes() != expected)) {
    return no(v1::CHUNK_WRONG_SERVER,
              fmt::format("chunk {} has {} bytes, the request {}", header.chunk(), expected,
                          payload == nullptr ? 0 : payload->sizeBytes()));
  }
  park(chunk, header, call, now, out);
  if (!takes_part || chunk.pushed[rank]) return;
  chunk.samples += header.samples();
  chunk.losses[rank] = header.loss_sum();
  chunk.contribute(rank, std::move(payload), config_.deterministic);
  if (!chunk.complete()) return;
  if (norm_.clips()) {
    holdStep(chunk, out);
  } else {
    finishStep(chunk, chunk.version, out);
  }
}

void Shard::park(ChunkState& chunk, const v1::ChunkRequestHeader& header, CallId call,
                 TimePoint now, std::vector<ChunkAnswer>& out) {
  // The same push again: the earlier call's caller has given it up.
  std::erase_if(chunk.parked, [&](const ChunkState::Parked& p) {
    if (p.worker != header.worker()) return false;
    out.push_back(refuse(p.call, header.chunk(), v1::CHUNK_NOT_READY, epoch_, "repeated"));
    return true;
  });
  chunk.parked.push_back({call, header.worker(), now});
}

// So many gradients make the chunk's next version.
int Shard::quorum(const ChunkState& chunk) const {
  return config_.asynchronous ? config_.aggregate : plan_.quorum(chunk.version);
}

// The mean of the block of elements at `at`, in place of the sum. False: it is not finite; all
// callers have been told.
bool Shard::averageBlock(ChunkState& chunk, std::int64_t at, std::vector<ChunkAnswer>& out) {
  const std::span<float> block = blockOf(*chunk.sum, at);
  divideFloats(block, static_cast<float>(chunk.samples));
  if (allFinite(block)) return true;
  const auto bad =
      std::find_if(block.begin(), block.end(), [](float x) { return !std::isfinite(x); });
  const std::string variable = variableAt(placement_, *chunk.plan, at + (bad - block.begin()));
  {
    std::lock_guard lock(snapshot_mutex_);
    if (!abort_) {
      abort_.emplace();
      abort_->set_step(chunk.version);
      abort_->set_variable(variable);
      abort_->set_reason("the sum of the gradients is not finite");
    }
  }
  for (const auto& parked : chunk.parked) {
    out.push_back(refuse(parked.call, chunk.plan->id, v1::CHUNK_NON_FINITE, epoch_, variable));
  }
  chunk.parked.clear();
  return false;
}

// The weights of the block's next version, in place of the mean.
void Shard::updateBlock(ChunkState& chunk, const UpdateContext& context, std::int64_t at) {
  const std::span<float> block = blockOf(*chunk.sum, at);
  std::vector<std::span<float>> slots;
  for (std::vector<float>& slot : chunk.slots) slots.push_back(blockOf(slot, at));
  optimizer_.apply(context, blockOf(*chunk.current, at), block, block, slots);
}

// `step` decides the learning rate.
void Shard::finishStep(ChunkState& chunk, std::int64_t step, std::vector<ChunkAnswer>& out) {
  const UpdateContext context{step, learning_rate_.at(step)};
  capture(chunk);
  prepareMean(chunk);
  for (std::int64_t at = 0; at < chunk.plan->elements; at += kUpdateBlock) {
    if (!averageBlock(chunk, at, out)) return;
    keepMean(chunk, at);
    updateBlock(chunk, context, at);
  }
  becomeNext(chunk, out);
}

// `sum` holds the next version's weights: it becomes current.
void Shard::turnVersion(ChunkState& chunk) {
  chunk.previous = std::move(chunk.current);
  chunk.current = std::move(chunk.sum);
  ++chunk.version;
  chunk.previous_samples = chunk.last_samples;
  chunk.previous_loss_sum = chunk.last_loss_sum;
  chunk.last_samples = chunk.samples;
  chunk.last_loss_sum = 0;
  for (double loss : chunk.losses)
    chunk.last_loss_sum += loss;  // in rank order: always the same bits
}

void Shard::becomeNext(ChunkState& chunk, std::vector<ChunkAnswer>& out) {
  turnVersion(chunk);
  if (guarded_) return announce(chunk);
  tell(chunk, out);
}

// All callers get the newest version.
void Shard::tell(ChunkState& chunk, std::vector<ChunkAnswer>& out) {
  capture(chunk);
  answerParked(chunk, out);
  chunk.resetStep(quorum(chunk));
}

void Shard::answerParked(ChunkState& chunk, std::vector<ChunkAnswer>& out) {
  for (const auto& parked : chunk.parked) {
    out.push_back(answerWith(parked.call, chunk, chunk.version, chunk.current));
  }
  chunk.parked.clear();
}

void Shard::onCancelled(CallId call) {
  std::shared_lock epoch_lock(epoch_mutex_);
  for (auto& chunk : chunks_) {
    const ChunkLock chunk_lock(*chunk);
    std::erase_if(chunk->parked, [&](const ChunkState::Parked& p) { return p.call == call; });
    std::erase_if(chunk->later, [&](const ChunkState::Later& l) { return l.call == call; });
  }
}

void Shard::onTick(TimePoint now, std::vector<ChunkAnswer>& out) {
  std::shared_lock epoch_lock(epoch_mutex_);
  for (auto& chunk : chunks_) {
    const ChunkLock chunk_lock(*chunk);
    std::erase_if(chunk->parked, [&](const ChunkState::Parked& p) {
      if (now - p.since < config_.stall_limit) return false;
      const std::string missing = chunk->missingRanks();
      out.push_back(refuse(p.call, chunk->plan->id, v1::CHUNK_NOT_READY, epoch_,
                           fmt::format("step {} waits for {}", chunk->version - chunk->unconfirmed,
                                       chunk->unconfirmed ? "the chunk's replica"
                                       : missing.empty()  ? "the norm of all servers' gradients"
                                                          : "workers of rank " + missing)));
      return true;
    });
  }
}

void Shard::seal(std::int64_t epoch, std::vector<ChunkAnswer>& out) {
  AllExcluded epoch_lock(*this);
  if (epoch <= epoch_) return;
  // A step whose norm is known is complete: then all of this server's chunks take it, or none.
  while (updateOne(out)) {
  }
  norm_.drop();
  epoch_ = epoch;
  open_ = false;
  released_ = false;
  for (auto& chunk : chunks_) {
    const ChunkLock chunk_lock(*chunk);
    for (const auto& parked : chunk->parked) {
      out.push_back(refuse(parked.call, chunk->plan->id, v1::CHUNK_WRONG_EPOCH, epoch_,
                           fmt::format("epoch {} has begun", epoch_)));
    }
    // Without common steps what was pushed stays pushed.
    if (!config_.asynchronous) chunk->resetStep(0);
    chunk->parked.clear();
    refuseLater(*chunk, out);
    chunk->unconfirmed = false;  // the replica gets it before the next epoch begins
  }
  takeUpdates();
  std::lock_guard lock(snapshot_mutex_);
  pending_.clear();
  missed_ = -1;
  captured_ = -1;
}

void Shard::load(std::uint32_t id, std::int64_t version, std::vector<float> weights,
                 std::vector<std::vector<float>> slots) {
  AllExcluded epoch_lock(*this);
  TY_CHECK(!open_, "chunks are loaded while nobody computes");
  ChunkState* chunk = find(id) != nullptr ? find(id) : findReplica(id);
  TY_CHECK(chunk != nullptr, "only chunks of this server and replicas are loaded");
  TY_CHECK(static_cast<std::int64_t>(weights.size()) == chunk->plan->elements,
           "weights fit the chunk");
  const ChunkLock chunk_lock(*chunk);
  chunk->version = version;
  chunk->current = std::make_shared<Weights>(std::move(weights));
  chunk->previous = nullptr;
  chunk->slots = std::move(slots);
  chunk->last_samples = 0;
  chunk->last_loss_sum = 0;
  chunk->last_norm.reset();
  norm_.clear();
  chunk->previous_samples = 0;
  chunk->previous_loss_sum = 0;
  chunk->applied.clear();
  chunk->pushed_tickets = {};
  chunk->pushed_samples = {};
  chunk->resetStep(0);
  empty_ = true;  // until open(): what is here is of two histories
  std::erase_if(replicas_, [&](const auto& r) { return !wanted_replicas_.contains(r.first); });
}

Status Shard::open(std::int64_t epoch, const StepPlan& plan, bool fresh, bool restored) {
  const std::int64_t first_step = plan.first_step;
  AllExcluded epoch_lock(*this);
  if (epoch != epoch_) {
    return absl::FailedPreconditionError(
        fmt::format("{} is sealed for epoch {}, not {}", serverName(config_.ps), epoch_, epoch));
  }
  const auto fits = [&](const ChunkState* chunk) {
    const std::int64_t version = chunk == nullptr ? -1 : chunk->version;
    return version >= 0 &&
           (config_.asynchronous || version == first_step || version == first_step + 1);
  };
  for (std::uint32_t id = 0; id < slot_of_chunk_.size(); ++id) {
    const ChunkState* chunk = wanted_replicas_.contains(id) ? findReplica(id) : find(id);
    if (slot_of_chunk_[id] < 0 && !wanted_replicas_.contains(id)) continue;
    if (fits(chunk)) continue;
    return absl::FailedPreconditionError(
        fmt::format("{}: chunk {} is at version {}, epoch {} starts at {}", serverName(config_.ps),
                    id, chunk == nullptr ? -1 : chunk->version, epoch, first_step));
  }
  plan_ = plan;
  for (auto& chunk : chunks_) {
    if (!config_.asynchronous || chunk->pushed.empty()) chunk->resetStep(quorum(*chunk));
  }
  if (fresh || restored) aside_.clear();  // of another history
  open_ = true;
  empty_ = false;  // a server without chunks (more servers than chunks) holds its nothing
  epoch_lock.unlock();
  if (fresh) arm(first_step);
  // Without common steps the coordinator asks, when no push is under way.
  if (!config_.asynchronous && (!restored || first_step != plan.steps)) arm(plan.steps);
  return absl::OkStatus();
}

v1::ShardState Shard::state() const {
  std::shared_lock epoch_lock(epoch_mutex_);
  v1::ShardState state;
  state.set_empty(empty_);
  std::int64_t lowest = -1;
  std::int64_t highest = -1;
  for (const auto& chunk : chunks_) {
    const std::int64_t version = chunk->told;
    if (version < 0) continue;  // it is another server's as long as it is not here
    lowest = lowest < 0 ? version : std::min(lowest, version);
    highest = std::max(highest, version);
  }
  state.set_min_version(lowest);
  state.set_max_version(highest);
  if (auto part = norm_.part()) *state.mutable_squares() = std::move(*part);
  if (!open_) {
    fillReplicas(state);
    fillPushes(state);
  }
  std::lock_guard lock(snapshot_mutex_);
  state.set_missed_checkpoint(missed_);
  state.set_captured_checkpoint(captured_);
  std::int64_t armed = -1;
  for (const Pending& pending : pending_) {
    if (pending.snapshot.version != plan_.steps) armed = pending.snapshot.version;
  }
  state.set_armed_checkpoint(armed);
  return state;
}

std::int64_t Shard::epoch() const {
  std::shared_lock epoch_lock(epoch_mutex_);
  return epoch_;
}

std::optional<v1::Abort> Shard::abort() const {
  std::lock_guard lock(snapshot_mutex_);
  return abort_;
}

void Shard::fillTable(v1::ShardTable& table) const {
  std::shared_lock epoch_lock(epoch_mutex_);
  for (const auto& chunk : chunks_) {
    for (const Segment& segment : chunk->plan->segments) {
      v1::ShardEntry* entry = table.add_entries();
      entry->set_variable(placement_.variables[static_cast<std::size_t>(segment.variable)].name);
      entry->set_begin(segment.begin);
      entry->set_end(segment.end);
      entry->set_chunk(chunk->plan->id);
      entry->set_dtype("F32");
    }
  }
  if (holds_global_step_) {
    v1::ShardEntry* entry = table.add_entries();
    entry->set_variable("global_step");
    entry->set_end(1);
    entry->set_dtype("I32");
  }
  std::sort(table.mutable_entries()->begin(), table.mutable_entries()->end(),
            [](const v1::ShardEntry& a, const v1::ShardEntry& b) {
              return std::pair(a.variable(), a.begin()) < std::pair(b.variable(), b.begin());
            });
  table.set_epoch(epoch_);
  for (const auto& [id, replica] : replicas_)
    table.set_replica_bytes(table.replica_bytes() +
                            static_cast<std::uint64_t>(replica->plan->elements) * 4);
  std::uint64_t bytes = 0;
  for (const auto& entry : table.entries())
    bytes += static_cast<std::uint64_t>(entry.end() - entry.begin()) * 4;
  table.set_bytes(bytes);
}

}  // namespace trainyard::runtime::ps
