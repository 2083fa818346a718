#include "runtime/ps/shard.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/core/check.h"
#include "fmt/format.h"
#include "runtime/placement/moves.h"
#include "runtime/ps/shard_updates.h"
#include "runtime/tensor/kernels.h"

namespace trainyard::runtime::ps {
namespace {

// Of any rule; at most centered RMSProp's three.
constexpr std::size_t kMostSlots = 4;

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

}  // namespace

void Shard::setMemory(WeightsMemory memory) {
  AllExcluded epoch_lock(*this);
  memory_ = std::move(memory);
}

std::span<float> Shard::blockOf(std::span<float> values, std::int64_t at) {
  const std::span<float> rest = values.subspan(static_cast<std::size_t>(at));
  return rest.first(std::min(rest.size(), static_cast<std::size_t>(kUpdateBlock)));
}

Shard::Shard(ShardConfig config, const Placement& placement, const Optimizer& optimizer,
             LearningRate learning_rate, std::unique_ptr<RowShard> rows)
    : config_(std::move(config)),
      placement_(placement),
      optimizer_(optimizer),
      learning_rate_(learning_rate),
      last_chunk_(placement.chunks.empty() ? 0 : placement.chunks.back().id),
      slot_of_chunk_(placement.chunks.size(), -1),
      norm_(config_.clip_norm, 0, false),
      mode_(config_.asynchronous ? std::unique_ptr<Updates>(std::make_unique<PushUpdates>(*this))
                                 : std::make_unique<StepUpdates>(*this)),
      rows_(std::move(rows)) {
  TY_CHECK(optimizer.slots().size() <= kMostSlots, "a rule with so many slots");
  std::vector<int> ps_of_chunk;
  for (const Chunk& chunk : placement.chunks) ps_of_chunk.push_back(chunk.ps);
  setOwn({}, ps_of_chunk);
  holds_global_step_ = placement.globalStepPs() == config_.ps;
  if (rows_ == nullptr) return;
  rows_->setLook([this](std::size_t at, const rows::RowPart& part) { captureRows(at, part); });
}

Shard::~Shard() = default;

ChunkAnswer Shard::refuse(CallId call, std::uint32_t chunk, v1::ChunkCode code,
                          std::string message) const {
  ChunkAnswer answer;
  answer.call = call;
  answer.header.set_code(code);
  answer.header.set_chunk(chunk);
  answer.header.set_epoch(epoch_);
  answer.header.set_message(std::move(message));
  return answer;
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
  const StepTally& step = newest ? chunk.last_step : chunk.previous_step;
  answer.header.set_samples(step.samples);
  answer.header.set_loss_sum(step.loss_sum);
  if (step.hits != kNotCounted) answer.header.set_hits(step.hits);
  if (newest && chunk.last_norm && chunk.plan->id == last_chunk_)
    answer.header.set_gradient_norm(*chunk.last_norm);
  answer.payload = std::move(weights);
  return answer;
}

ChunkState* Shard::find(std::uint32_t chunk) const {
  if (chunk >= slot_of_chunk_.size() || slot_of_chunk_[chunk] < 0) return nullptr;
  return chunks_[static_cast<std::size_t>(slot_of_chunk_[chunk])].get();
}

// Why a request means nothing here, or not now.
std::optional<ChunkAnswer> Shard::refusal(const v1::ChunkRequestHeader& header, CallId call) const {
  const auto no = [&](v1::ChunkCode code, std::string message) {
    return refuse(call, header.chunk(), code, std::move(message));
  };
  if (header.job_uid() != config_.job_uid)
    return no(v1::CHUNK_WRONG_SERVER, "another job's request");
  if (!sameIncarnation(header.server(), config_.self))
    return no(v1::CHUNK_WRONG_SERVER, "meant for another incarnation of this server");
  if (!open_ || header.epoch() != epoch_) {
    return no(v1::CHUNK_WRONG_EPOCH,
              fmt::format("epoch {} is not open, the server is in {}", header.epoch(), epoch_));
  }
  return std::nullopt;
}

void Shard::onRequest(const v1::ChunkRequestHeader& header,
                      std::unique_ptr<GradientPayload> payload, CallId call, TimePoint now,
                      std::vector<ChunkAnswer>& out) {
  std::shared_lock epoch_lock(epoch_mutex_);
  if (auto refused = refusal(header, call)) return out.push_back(*std::move(refused));
  if (header.replica()) return applyReplica(header, std::move(payload), call, out);
  ChunkState* chunk = find(header.chunk());
  if (chunk == nullptr) {
    return out.push_back(
        refuse(call, header.chunk(), v1::CHUNK_WRONG_SERVER,
               fmt::format("chunk {} is not on {}", header.chunk(), serverName(config_.ps))));
  }
  const ChunkLock chunk_lock(*chunk);
  if (header.pull_only()) return mode_->onPull(*chunk, header, call, out);
  mode_->onPush(*chunk, header, std::move(payload), call, now, out);
}

void Shard::onRowRequest(const v1::ChunkRequestHeader& header, std::span<const std::byte> body,
                         CallId call, TimePoint now, std::vector<ChunkAnswer>& out) {
  std::shared_lock epoch_lock(epoch_mutex_);
  if (auto refused = refusal(header, call)) return out.push_back(*std::move(refused));
  if (header.replica()) return rows_->takeReplica(header, body, call, out);
  rows_->onRequest(header, body, call, now, out);
}

// The mean of the block of elements at `at`, in the memory of the sum. False: it is not finite; all
// callers have been told.
bool Shard::averageBlock(ChunkState& chunk, std::int64_t at, std::vector<ChunkAnswer>& out) {
  const std::span<float> block = blockOf(*chunk.sum, at);
  chunk.sumBlock(block, static_cast<std::size_t>(at));
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
      abort_->set_reason(
          config_.wire == ElementType::kFloat16
              ? "the sum of the gradients is not finite; training.wireType Float16 ends at 65,504"
              : "the sum of the gradients is not finite");
      progress_ = true;
    }
  }
  for (const auto& parked : chunk.parked) {
    out.push_back(refuse(parked.call, chunk.plan->id, v1::CHUNK_NON_FINITE, variable));
  }
  chunk.parked.clear();
  return false;
}

// The weights of the block's next version, in place of the mean.
void Shard::updateBlock(ChunkState& chunk, const UpdateContext& context, std::int64_t at) {
  const std::span<float> block = blockOf(*chunk.sum, at);
  SlotArrays::Arrays& arrays = chunk.slots.own();
  std::array<std::span<float>, kMostSlots> slots;
  for (std::size_t i = 0; i < arrays.size(); ++i) slots[i] = blockOf(arrays[i], at);
  optimizer_.apply(context, blockOf(*chunk.current, at), block, block,
                   std::span(slots).first(arrays.size()));
}

// `sum` holds the next version's weights: it becomes current.
void Shard::turnVersion(ChunkState& chunk) {
  chunk.previous = std::move(chunk.current);
  chunk.current = std::move(chunk.sum);
  ++chunk.version;
  chunk.previous_step = chunk.last_step;
  chunk.last_step = {chunk.samples, 0, chunk.hits};
  for (double loss : chunk.losses)
    chunk.last_step.loss_sum += loss;  // in rank order: always the same bits
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
    mode_->onCancelled(*chunk, call);
  }
  if (rows_ != nullptr) rows_->onCancelled(call);
}

std::string Shard::waitsFor(const ChunkState& chunk) const {
  if (chunk.unconfirmed) return "the chunk's replica";
  if (config_.asynchronous) return "the other pushes of its update";
  const std::string missing = chunk.missingRanks();
  if (missing.empty()) return "the norm of all servers' gradients";
  if (plan_.backup_workers == 0) return "workers of rank " + missing;
  // Whoever has places left: they are not ranks.
  return fmt::format("{} of {} gradients", std::ranges::count(chunk.pushed, false),
                     chunk.pushed.size());
}

void Shard::onTick(TimePoint now, std::vector<ChunkAnswer>& out) {
  std::shared_lock epoch_lock(epoch_mutex_);
  for (auto& chunk : chunks_) {
    const ChunkLock chunk_lock(*chunk);
    std::erase_if(chunk->parked, [&](const ChunkState::Parked& p) {
      if (now - p.since < config_.stall_limit) return false;
      out.push_back(refuse(p.call, chunk->plan->id, v1::CHUNK_NOT_READY,
                           fmt::format("step {} waits for {}", chunk->version - chunk->unconfirmed,
                                       waitsFor(*chunk))));
      return true;
    });
  }
  if (rows_ != nullptr) rows_->giveUp(now - config_.stall_limit, out);
}

void Shard::seal(std::int64_t epoch, std::vector<ChunkAnswer>& out) {
  AllExcluded epoch_lock(*this);
  if (epoch <= epoch_) return;
  // A step whose norm is known is complete: then all of this server's chunks take it, or none.
  while (mode_->updateHeld(out)) {
  }
  norm_.drop();
  epoch_ = epoch;
  open_ = false;
  released_ = false;
  for (auto& chunk : chunks_) {
    const ChunkLock chunk_lock(*chunk);
    for (const auto& parked : chunk->parked) {
      out.push_back(refuse(parked.call, chunk->plan->id, v1::CHUNK_WRONG_EPOCH,
                           fmt::format("epoch {} has begun", epoch_)));
    }
    mode_->seal(*chunk, out);
    chunk->parked.clear();
    chunk->unconfirmed = false;  // the replica gets it before the next epoch begins
  }
  if (rows_ != nullptr) rows_->seal(out);
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
  chunk->current = std::make_shared<Weights>(weights.begin(), weights.end());
  chunk->previous = nullptr;
  chunk->slots = std::move(slots);
  chunk->last_step = chunk->previous_step = {};
  chunk->last_norm.reset();
  norm_.clear();
  mode_->load(*chunk);
  empty_ = true;  // until open(): what is here is of two histories
  std::erase_if(replicas_, [&](const auto& r) { return !wanted_replicas_.contains(r.first); });
}

void Shard::clearRows(std::int64_t version) {
  AllExcluded epoch_lock(*this);
  TY_CHECK(!open_, "rows are loaded while nobody computes");
  if (rows_ != nullptr) rows_->clear(version);
}

void Shard::loadRows(const TableRows& rows) {
  AllExcluded epoch_lock(*this);
  TY_CHECK(!open_, "rows are loaded while nobody computes");
  rows_->load(rows);
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
    return version >= 0 && mode_->canStart(version, first_step);
  };
  for (std::uint32_t id = 0; id < slot_of_chunk_.size(); ++id) {
    const ChunkState* chunk = wanted_replicas_.contains(id) ? findReplica(id) : find(id);
    if (slot_of_chunk_[id] < 0 && !wanted_replicas_.contains(id)) continue;
    if (fits(chunk)) continue;
    return absl::FailedPreconditionError(
        fmt::format("{}: chunk {} is at version {}, epoch {} starts at {}", serverName(config_.ps),
                    id, chunk == nullptr ? -1 : chunk->version, epoch, first_step));
  }
  if (rows_ != nullptr)
    TY_RETURN_IF_ERROR(annotate(rows_->open(epoch, plan), serverName(config_.ps)));
  plan_ = plan;
  for (auto& chunk : chunks_) mode_->open(*chunk);
  if (fresh || restored) aside_.clear();  // of another history
  open_ = true;
  empty_ = false;  // a server without chunks (more servers than chunks) holds its nothing
  const bool arms_last = mode_->armsLast(restored);
  epoch_lock.unlock();
  if (fresh) arm(first_step);
  if (arms_last) arm(plan.steps);
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
  if (const std::int64_t of_rows = rows_ == nullptr ? -1 : rows_->lowestVersion(); of_rows >= 0) {
    lowest = lowest < 0 ? of_rows : std::min(lowest, of_rows);
    highest = std::max(highest, rows_->highestVersion());
  }
  state.set_min_version(lowest);
  state.set_max_version(highest);
  if (auto part = norm_.part()) *state.mutable_squares() = std::move(*part);
  if (!open_) {
    fillReplicas(state);
    if (!empty_) mode_->fillState(state);
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

std::size_t Shard::chunks() const {
  std::shared_lock epoch_lock(epoch_mutex_);
  return chunks_.size();
}

std::int64_t Shard::epoch() const {
  std::shared_lock epoch_lock(epoch_mutex_);
  return epoch_;
}

std::optional<v1::Abort> Shard::abort() const {
  {
    std::lock_guard lock(snapshot_mutex_);
    if (abort_ || rows_ == nullptr) return abort_;
  }
  std::shared_lock epoch_lock(epoch_mutex_);
  return rows_->abort();
}

void Shard::fillReport(v1::RuntimeReport& report) const {
  if (rows_ == nullptr) return;
  std::shared_lock epoch_lock(epoch_mutex_);
  rows_->fillReport(report);
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
  if (rows_ != nullptr) rows_->fillTables(table);
  for (const auto& [id, replica] : replicas_)
    table.set_replica_bytes(table.replica_bytes() +
                            static_cast<std::uint64_t>(replica->plan->elements) * 4);
  std::uint64_t bytes = 0;
  for (const auto& entry : table.entries())
    bytes += static_cast<std::uint64_t>(entry.end() - entry.begin()) * 4;
  table.set_bytes(bytes);
}

}  // namespace trainyard::runtime::ps
