// Modes Async and BoundedDelay: each push is applied as it comes, chunk by chunk, to whatever
// version the chunk then has; the caller is answered with the outcome. A chunk's version counts its
// updates. With `aggregate` k, each k-th push that reaches a chunk updates it with the mean of the
// last k (weighted by samples); the others are answered at once with what is there.
//
// With replicas a push is answered when the replica has taken it too: it goes there as it came, and
// while it is on its way the chunk takes no other. So a replica has the pushes of its chunk in the
// same order, and lacks at most the newest.
//
// Between two updates, when the coordinator knows that no push is under way, all chunks of all
// servers have had the same pushes: then a snapshot is taken, and the coordinator names its
// version.
#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "runtime/ps/shard.h"

namespace trainyard::runtime::ps {
namespace {

// A gradient that outlives its message.
class OwnPayload final : public GradientPayload {
 public:
  explicit OwnPayload(std::shared_ptr<const Weights> values) : values_(std::move(values)) {}
  std::size_t sizeBytes() const override { return values_->size() * sizeof(float); }
  void copyTo(std::span<float> out) const override {
    std::copy(values_->begin(), values_->end(), out.begin());
  }
  void addTo(std::span<float> acc) const override {
    for (std::size_t i = 0; i < acc.size(); ++i) acc[i] += (*values_)[i];
  }

 private:
  const std::shared_ptr<const Weights> values_;
};

ChunkState::PushKey keyOf(const v1::ChunkRequestHeader& header) {
  return {header.worker_incarnation().created(), header.worker_incarnation().start(),
          header.push()};
}

}  // namespace

void Shard::applyPush(ChunkState& chunk, const v1::ChunkRequestHeader& header,
                      std::unique_ptr<GradientPayload> payload, CallId call, TimePoint now,
                      std::vector<ChunkAnswer>& out) {
  const std::size_t expected = static_cast<std::size_t>(chunk.plan->elements) * sizeof(float);
  if (payload == nullptr || payload->sizeBytes() != expected || header.samples() == 0) {
    ChunkAnswer answer;
    answer.call = call;
    answer.header.set_code(v1::CHUNK_WRONG_SERVER);
    answer.header.set_chunk(header.chunk());
    answer.header.set_epoch(epoch_);
    answer.header.set_message(
        fmt::format("chunk {} has {} bytes, the request {} and {} samples", header.chunk(),
                    expected, payload == nullptr ? 0 : payload->sizeBytes(), header.samples()));
    out.push_back(std::move(answer));
    return;
  }
  if (chunk.complete()) {  // with a mean that is not finite: the job is about to fail
    ChunkAnswer answer;
    answer.call = call;
    answer.header.set_code(v1::CHUNK_NON_FINITE);
    answer.header.set_chunk(header.chunk());
    answer.header.set_epoch(epoch_);
    out.push_back(std::move(answer));
    return;
  }
  if (chunk.unconfirmed) {
    auto values = std::make_shared<Weights>(static_cast<std::size_t>(chunk.plan->elements));
    payload->copyTo(*values);
    chunk.later.push_back({header, std::make_unique<OwnPayload>(std::move(values)), call, now});
    return;
  }
  chunk.parked.push_back({call, header.worker(), now});
  // A push that comes again, because its answer was late or lost, is in already.
  if (const auto known = chunk.applied.find(header.worker());
      known != chunk.applied.end() && known->second >= keyOf(header))
    return answerParked(chunk, out);
  const std::int64_t before = pointOf(chunk);
  capture(chunk);
  prepareMean(chunk);
  if (guarded_) payload->copyTo(*chunk.mean);
  contributePush(chunk, header.worker(), header, std::move(payload));
  if (chunk.complete() && !updateComplete(chunk, header.step(), out)) return;
  if (guarded_) return announcePush(chunk, header, before);
  answerParked(chunk, out);
}

// How many pushes are in the chunk, as far as its version counts them.
std::int64_t Shard::pointOf(const ChunkState& chunk) const {
  return config_.asynchronous ? chunk.version * config_.aggregate + chunk.added : chunk.version;
}

void Shard::contributePush(ChunkState& chunk, std::uint32_t worker,
                           const v1::ChunkRequestHeader& header,
                           std::unique_ptr<GradientPayload> payload) {
  chunk.applied[worker] = keyOf(header);
  chunk.pushed_tickets.add(header.ticket());
  chunk.pushed_samples.add(header.first(), header.first() + header.samples());
  const auto place = static_cast<std::uint32_t>(chunk.added);
  chunk.samples += header.samples();
  chunk.losses[place] = header.loss_sum();
  chunk.contribute(place, std::move(payload), false);
}

// The next version, of as many gradients as there are. `step` decides the learning rate. False: the
// mean is not finite; all callers have been told.
bool Shard::updateComplete(ChunkState& chunk, std::int64_t step, std::vector<ChunkAnswer>& out) {
  const UpdateContext context{step, learning_rate_.at(step)};
  for (std::int64_t at = 0; at < chunk.plan->elements; at += kUpdateBlock) {
    if (!averageBlock(chunk, at, out)) return false;
    updateBlock(chunk, context, at);
  }
  turnVersion(chunk);
  std::vector<ChunkState::Parked> callers = std::move(chunk.parked);
  chunk.resetStep(config_.aggregate);
  chunk.parked = std::move(callers);
  return true;
}

// `before`: pushes that were in the chunk before this one.
void Shard::announcePush(ChunkState& chunk, const v1::ChunkRequestHeader& header,
                         std::int64_t before) {
  chunk.unconfirmed = true;
  ReplicaUpdate update;
  update.header = header;
  update.header.clear_shared();
  update.header.clear_receipt();
  update.header.set_replica(true);
  update.header.set_rank(header.worker());
  update.header.set_before(before);
  update.mean = chunk.mean;
  std::lock_guard lock(updates_mutex_);
  updates_.push_back(std::move(update));
}

// False: it lacks a push before this one.
bool Shard::takePush(ChunkState& replica, const v1::ChunkRequestHeader& header,
                     std::unique_ptr<GradientPayload> payload) {
  const auto known = replica.applied.find(header.rank());
  if (known != replica.applied.end() && known->second >= keyOf(header)) return true;
  if (replica.pushed.empty()) replica.resetStep(config_.aggregate);
  const std::int64_t before = header.before();
  // Where the chunk has been settled since the last push, so is its replica now.
  if (before != pointOf(replica) && before % config_.aggregate == 0)
    settle(replica, before / config_.aggregate);
  if (before != pointOf(replica)) return false;
  contributePush(replica, header.rank(), header, std::move(payload));
  std::vector<ChunkAnswer> nobody;
  if (replica.complete()) updateComplete(replica, header.step(), nobody);
  return true;
}

void Shard::applyLater(ChunkState& chunk, std::vector<ChunkAnswer>& out) {
  while (!chunk.unconfirmed && !chunk.later.empty()) {
    ChunkState::Later next = std::move(chunk.later.front());
    chunk.later.pop_front();
    applyPush(chunk, next.header, std::move(next.payload), next.call, next.since, out);
  }
}

// The epoch ends: they come again under the next.
void Shard::refuseLater(ChunkState& chunk, std::vector<ChunkAnswer>& out) {
  for (const ChunkState::Later& later : std::exchange(chunk.later, {})) {
    ChunkAnswer answer;
    answer.call = later.call;
    answer.header.set_code(v1::CHUNK_WRONG_EPOCH);
    answer.header.set_chunk(later.header.chunk());
    answer.header.set_epoch(epoch_);
    answer.header.set_message(fmt::format("epoch {} has begun", epoch_));
    out.push_back(std::move(answer));
  }
}

// Of the update that is not complete, the newest of each worker, and which there were.
void Shard::copyPushes(const ChunkState& from, ChunkState& to) {
  to.resetStep(static_cast<int>(from.pushed.size()));
  to.sum = from.sum == nullptr ? nullptr : std::make_shared<Weights>(*from.sum);
  to.pushed = from.pushed;
  to.losses = from.losses;
  to.added = from.added;
  to.samples = from.samples;
  to.applied = from.applied;
  to.pushed_tickets = from.pushed_tickets;
  to.pushed_samples = from.pushed_samples;
}

// A push that is finished is in every chunk; one that its worker's death has cut short, in some.
// Replicas count where the chunk itself is lost.
void Shard::fillPushes(v1::ShardState& state) const {
  if (!config_.asynchronous || empty_) return;
  NumberSet tickets;
  NumberSet samples;
  const auto look = [&](const ChunkState& chunk) {
    tickets.add(chunk.pushed_tickets);
    samples.add(chunk.pushed_samples);
  };
  for (const auto& chunk : chunks_) look(*chunk);
  for (const auto& [id, chunk] : aside_) look(*chunk);
  for (const auto& [id, replica] : replicas_) look(*replica);
  tickets.write(*state.mutable_pushed_tickets());
  samples.write(*state.mutable_pushed_samples());
}

// No push is under way. Gradients that wait for more of them (a worker has died) make a last
// update.
void Shard::settle(ChunkState& chunk, std::int64_t version) {
  if (chunk.added > 0) {
    std::vector<ChunkAnswer> nobody;
    updateComplete(chunk, std::max<std::int64_t>(0, version - 1), nobody);
  }
  chunk.version = version;
}

}  // namespace trainyard::runtime::ps
