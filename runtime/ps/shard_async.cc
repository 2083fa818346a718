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
#include "runtime/ps/shard_updates.h"

namespace trainyard::runtime::ps {
namespace {

// A gradient that outlives its message.
class OwnPayload final : public GradientPayload {
 public:
  explicit OwnPayload(std::shared_ptr<const Weights> values) : values_(std::move(values)) {}
  std::size_t sizeBytes() const override { return values_->size() * sizeof(float); }
  void copyTo(std::span<float> out, std::size_t at) const override {
    std::copy_n(values_->begin() + static_cast<std::ptrdiff_t>(at), out.size(), out.begin());
  }
  void addTo(std::span<float> acc, std::size_t at) const override {
    for (std::size_t i = 0; i < acc.size(); ++i) acc[i] += (*values_)[at + i];
  }

 private:
  const std::shared_ptr<const Weights> values_;
};

PushChunk::PushKey keyOf(const v1::ChunkRequestHeader& header) {
  return {header.worker_incarnation().created(), header.worker_incarnation().start(),
          header.push()};
}

// All chunks of a shard are of its mode.
PushChunk& pushesOf(ChunkState& chunk) {
  return static_cast<PushChunk&>(chunk);
}
const PushChunk& pushesOf(const ChunkState& chunk) {
  return static_cast<const PushChunk&>(chunk);
}

}  // namespace

// Gradients of an update may wait long for the others: their memory is not kept.
std::unique_ptr<ChunkState> Shard::PushUpdates::makeChunk(const Chunk& chunk) const {
  return std::make_unique<PushChunk>(chunk,
                                     shard_.config_.clip_norm > 0 || shard_.config_.aggregate > 1);
}

void Shard::PushUpdates::onPull(ChunkState& chunk, const Header& /*header*/, CallId call,
                                Answers& out) {
  out.push_back(shard_.answerWith(call, chunk, chunk.version, chunk.current));
}

void Shard::PushUpdates::onPush(ChunkState& state, const Header& header,
                                std::unique_ptr<GradientPayload> payload, CallId call,
                                TimePoint now, Answers& out) {
  PushChunk& chunk = pushesOf(state);
  const std::size_t expected = gradientBytes(*chunk.plan, payload.get());
  if (payload == nullptr || payload->sizeBytes() != expected || header.samples() == 0) {
    out.push_back(shard_.refuse(
        call, header.chunk(), v1::CHUNK_WRONG_SERVER,
        fmt::format("chunk {} has {} bytes, the request {} and {} samples", header.chunk(),
                    expected, payload == nullptr ? 0 : payload->sizeBytes(), header.samples())));
    return;
  }
  if (chunk.complete()) {  // with a mean that is not finite: the job is about to fail
    out.push_back(shard_.refuse(call, header.chunk(), v1::CHUNK_NON_FINITE, ""));
    return;
  }
  if (chunk.unconfirmed) {
    auto values = makeWeights(static_cast<std::size_t>(chunk.plan->elements));
    payload->copyTo(*values, 0);
    chunk.later.push_back({header, std::make_unique<OwnPayload>(std::move(values)), call, now});
    return;
  }
  chunk.parked.push_back({call, header.worker(), now});
  // A push that comes again, because its answer was late or lost, is in already.
  if (const auto known = chunk.applied.find(header.worker());
      known != chunk.applied.end() && known->second >= keyOf(header))
    return shard_.answerParked(chunk, out);
  const std::int64_t before = pointOf(chunk);
  shard_.capture(chunk);
  shard_.prepareMean(chunk);
  if (shard_.guarded_) payload->copyTo(*chunk.mean, 0);
  contribute(chunk, header, std::move(payload));
  if (chunk.complete() && !updateComplete(chunk, header.step(), out)) return;
  if (shard_.guarded_) return announce(chunk, header, before);
  shard_.answerParked(chunk, out);
}

// How many pushes are in the chunk, as far as its version counts them.
std::int64_t Shard::PushUpdates::pointOf(const ChunkState& chunk) const {
  return chunk.version * shard_.config_.aggregate + chunk.added;
}

void Shard::PushUpdates::contribute(PushChunk& chunk, const Header& header,
                                    std::unique_ptr<GradientPayload> payload) {
  chunk.applied[header.worker()] = keyOf(header);
  chunk.pushed_tickets.add(header.ticket());
  chunk.pushed_samples.add(header.first(), header.first() + header.samples());
  const auto place = static_cast<std::uint32_t>(chunk.added);
  chunk.samples += header.samples();
  chunk.losses[place] = header.loss_sum();
  chunk.hits = addHits(chunk.hits, hitsOf(header));
  chunk.contribute(place, std::move(payload), false, shard_.memory_);
}

// The next version, of as many gradients as there are. `step` decides the learning rate. False: the
// mean is not finite; all callers have been told.
bool Shard::PushUpdates::updateComplete(ChunkState& chunk, std::int64_t step, Answers& out) {
  const UpdateContext context{step, shard_.learning_rate_.at(step)};
  if (!chunk.kept.empty()) chunk.beginSum(shard_.memory_);
  for (std::int64_t at = 0; at < chunk.plan->elements; at += kUpdateBlock) {
    if (!shard_.averageBlock(chunk, at, out)) return false;
    shard_.updateBlock(chunk, context, at);
  }
  chunk.endSum();
  shard_.turnVersion(chunk);
  std::vector<ChunkState::Parked> callers = std::move(chunk.parked);
  chunk.resetStep(shard_.config_.aggregate);
  chunk.parked = std::move(callers);
  return true;
}

// `before`: pushes that were in the chunk before this one.
void Shard::PushUpdates::announce(ChunkState& chunk, const Header& header, std::int64_t before) {
  Header update = header;
  update.clear_shared();
  update.clear_receipt();
  update.set_before(before);
  shard_.sendToReplica(chunk, std::move(update));
}

bool Shard::PushUpdates::takeAsReplica(ChunkState& state, const Header& header,
                                       std::unique_ptr<GradientPayload> payload) {
  PushChunk& replica = pushesOf(state);
  const auto known = replica.applied.find(header.worker());
  if (known != replica.applied.end() && known->second >= keyOf(header)) return true;
  if (replica.pushed.empty()) replica.resetStep(shard_.config_.aggregate);
  const std::int64_t before = header.before();
  // Where the chunk has been settled since the last push, so is its replica now.
  if (before != pointOf(replica) && before % shard_.config_.aggregate == 0)
    settle(replica, before / shard_.config_.aggregate);
  if (before != pointOf(replica)) return false;
  contribute(replica, header, std::move(payload));
  std::vector<ChunkAnswer> nobody;
  if (replica.complete()) updateComplete(replica, header.step(), nobody);
  return true;
}

void Shard::PushUpdates::onReplicated(ChunkState& chunk, Answers& out) {
  shard_.answerParked(chunk, out);
  applyLater(pushesOf(chunk), out);
}

void Shard::PushUpdates::applyLater(PushChunk& chunk, Answers& out) {
  while (!chunk.unconfirmed && !chunk.later.empty()) {
    PushChunk::Later next = std::move(chunk.later.front());
    chunk.later.pop_front();
    onPush(chunk, next.header, std::move(next.payload), next.call, next.since, out);
  }
}

void Shard::PushUpdates::onCancelled(ChunkState& chunk, CallId call) {
  std::erase_if(pushesOf(chunk).later,
                [&](const PushChunk::Later& later) { return later.call == call; });
}

// What was pushed stays pushed. What waits comes again under the next epoch.
void Shard::PushUpdates::seal(ChunkState& chunk, Answers& out) {
  for (const PushChunk::Later& later : std::exchange(pushesOf(chunk).later, {})) {
    out.push_back(shard_.refuse(later.call, later.header.chunk(), v1::CHUNK_WRONG_EPOCH,
                                fmt::format("epoch {} has begun", shard_.epoch_)));
  }
}

void Shard::PushUpdates::open(ChunkState& chunk) {
  if (chunk.pushed.empty()) chunk.resetStep(shard_.config_.aggregate);
}

void Shard::PushUpdates::load(ChunkState& chunk) {
  PushChunk& pushes = pushesOf(chunk);
  pushes.applied.clear();
  pushes.pushed_tickets = {};
  pushes.pushed_samples = {};
  chunk.resetStep(0);
}

// Of the update that is not complete, the newest of each worker, and which there were.
void Shard::PushUpdates::adopt(const ChunkState& replica, ChunkState& chunk) {
  const PushChunk& from = pushesOf(replica);
  PushChunk& to = pushesOf(chunk);
  to.resetStep(static_cast<int>(from.pushed.size()));
  to.sum = from.sum == nullptr ? nullptr : std::make_shared<Weights>(*from.sum);
  to.pushed = from.pushed;
  to.losses = from.losses;
  to.added = from.added;
  to.samples = from.samples;
  to.hits = from.hits;
  to.applied = from.applied;
  to.pushed_tickets = from.pushed_tickets;
  to.pushed_samples = from.pushed_samples;
}

void Shard::PushUpdates::give(const ChunkState& state, GivenChunk& given) const {
  const PushChunk& chunk = pushesOf(state);
  v1::ChunkRecord& record = given.record;
  if (chunk.sum != nullptr) given.sum = std::make_shared<Weights>(*chunk.sum);
  record.set_added(chunk.added);
  record.set_samples(chunk.samples);
  if (chunk.hits != kNotCounted) record.set_hits(chunk.hits);
  record.mutable_losses()->Add(chunk.losses.begin(), chunk.losses.end());
  for (const auto& [worker, push] : chunk.applied) {
    v1::AppliedPush* applied = record.add_applied();
    applied->set_worker(worker);
    applied->mutable_incarnation()->set_created(std::get<0>(push));
    applied->mutable_incarnation()->set_start(std::get<1>(push));
    applied->set_push(std::get<2>(push));
  }
  chunk.pushed_tickets.write(*record.mutable_pushed_tickets());
  chunk.pushed_samples.write(*record.mutable_pushed_samples());
}

void Shard::PushUpdates::takeOver(ChunkState& state, GivenChunk& given) {
  PushChunk& chunk = pushesOf(state);
  const v1::ChunkRecord& record = given.record;
  chunk.resetStep(record.losses_size());
  chunk.sum = record.added() > 0 ? std::move(given.sum) : nullptr;
  chunk.added = record.added();
  chunk.samples = record.samples();
  chunk.hits = record.has_hits() ? record.hits() : kNotCounted;
  for (int i = 0; i < record.losses_size(); ++i) {
    chunk.losses[static_cast<std::size_t>(i)] = record.losses(i);
    chunk.pushed[static_cast<std::size_t>(i)] = i < record.added();
  }
  chunk.applied.clear();
  for (const v1::AppliedPush& push : record.applied()) {
    chunk.applied[push.worker()] = {push.incarnation().created(), push.incarnation().start(),
                                    push.push()};
  }
  chunk.pushed_tickets = NumberSet(record.pushed_tickets());
  chunk.pushed_samples = NumberSet(record.pushed_samples());
}

// A push that is finished is in every chunk; one that its worker's death has cut short, in some.
// Replicas count where the chunk itself is lost.
void Shard::PushUpdates::fillState(v1::ShardState& state) const {
  NumberSet tickets;
  NumberSet samples;
  const auto look = [&](const ChunkState& chunk) {
    tickets.add(pushesOf(chunk).pushed_tickets);
    samples.add(pushesOf(chunk).pushed_samples);
  };
  for (const auto& chunk : shard_.chunks_) look(*chunk);
  for (const auto& [id, chunk] : shard_.aside_) look(*chunk);
  for (const auto& [id, replica] : shard_.replicas_) look(*replica);
  if (shard_.rows_ != nullptr) shard_.rows_->addPushed(tickets, samples);
  tickets.write(*state.mutable_pushed_tickets());
  samples.write(*state.mutable_pushed_samples());
}

void Shard::PushUpdates::settle(std::int64_t version) {
  for (auto& chunk : shard_.chunks_) {
    const ChunkLock chunk_lock(*chunk);
    settle(*chunk, version);
  }
  if (shard_.rows_ != nullptr) shard_.rows_->settle(version);
}

// No push is under way. Gradients that wait for more of them (a worker has died) make a last
// update.
void Shard::PushUpdates::settle(ChunkState& chunk, std::int64_t version) {
  if (chunk.added > 0) {
    std::vector<ChunkAnswer> nobody;
    updateComplete(chunk, std::max<std::int64_t>(0, version - 1), nobody);
  }
  chunk.version = version;
}

}  // namespace trainyard::runtime::ps
