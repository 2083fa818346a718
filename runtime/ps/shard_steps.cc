// Modes with common steps: a chunk's next version is of the gradients of all ranks, or, with backup
// workers, of those that have a place.
#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "runtime/ps/protocol.h"
#include "runtime/ps/shard_updates.h"

namespace trainyard::runtime::ps {

// With clipping a gradient's memory would be kept until all are there.
std::unique_ptr<ChunkState> Shard::StepUpdates::makeChunk(const Chunk& chunk) const {
  return std::make_unique<StepChunk>(chunk, shard_.config_.clip_norm > 0);
}

void Shard::StepUpdates::onPull(ChunkState& chunk, const Header& header, CallId call,
                                Answers& out) {
  if (header.version() == chunk.version && !chunk.unconfirmed) {
    out.push_back(shard_.answerWith(call, chunk, chunk.version, chunk.current));
  } else if (header.version() == chunk.version - 1 && chunk.previous != nullptr) {
    out.push_back(shard_.answerWith(call, chunk, chunk.version - 1, chunk.previous));
  } else {
    out.push_back(shard_.refuse(call, header.chunk(), v1::CHUNK_GONE,
                                fmt::format("version {} of chunk {} is not held, it is at {}",
                                            header.version(), header.chunk(), chunk.version)));
  }
}

// Why nothing of the step is this worker's; "": it may be.
std::string Shard::StepUpdates::strangerOf(const ChunkState& chunk, const Header& header) const {
  const StepPlan& plan = shard_.plan_;
  if (header.rank() >= static_cast<std::uint32_t>(plan.ranks))
    return fmt::format("rank {} of {}", header.rank(), plan.ranks);
  if (plan.backup_workers > 0 && header.has_place() && header.place() >= chunk.pushed.size())
    return fmt::format("place {} of {}", header.place(), chunk.pushed.size());
  return "";
}

// Which of the step's gradients the request brings; nothing: it only waits for the outcome.
std::optional<std::uint32_t> Shard::StepUpdates::partOf(const ChunkState& chunk,
                                                        const Header& header) const {
  if (shard_.plan_.backup_workers > 0)
    return header.has_place() ? std::optional(header.place()) : std::nullopt;
  return header.rank() < chunk.pushed.size() ? std::optional(header.rank()) : std::nullopt;
}

void Shard::StepUpdates::onPush(ChunkState& chunk, const Header& header,
                                std::unique_ptr<GradientPayload> payload, CallId call,
                                TimePoint now, Answers& out) {
  const auto no = [&](v1::ChunkCode code, std::string message) {
    out.push_back(shard_.refuse(call, header.chunk(), code, std::move(message)));
  };
  if (chunk.unconfirmed && header.step() == chunk.version - 1)
    return park(chunk, header, call, now, out);
  if (header.step() == chunk.version - 1) {
    // Complete already, under an earlier epoch or by the call that this one repeats.
    out.push_back(shard_.answerWith(call, chunk, chunk.version, chunk.current));
    return;
  }
  if (header.step() == chunk.version - 2 && chunk.previous != nullptr) {
    // A rank that had no part in the step after this one, which is complete as well.
    out.push_back(shard_.answerWith(call, chunk, chunk.version - 1, chunk.previous));
    return;
  }
  if (header.step() != chunk.version || header.step() >= shard_.plan_.steps) {
    return no(v1::CHUNK_GONE,
              fmt::format("step {} of chunk {} cannot be taken, it is at version {}", header.step(),
                          header.chunk(), chunk.version));
  }
  if (std::string stranger = strangerOf(chunk, header); !stranger.empty())
    return no(v1::CHUNK_WRONG_EPOCH, std::move(stranger));
  const std::optional<std::uint32_t> part = partOf(chunk, header);
  const std::size_t expected = gradientBytes(*chunk.plan, payload.get());
  if (part && (payload == nullptr || payload->sizeBytes() != expected)) {
    return no(v1::CHUNK_WRONG_SERVER,
              fmt::format("chunk {} has {} bytes, the request {}", header.chunk(), expected,
                          payload == nullptr ? 0 : payload->sizeBytes()));
  }
  park(chunk, header, call, now, out);
  if (!part || chunk.pushed[*part]) return;
  chunk.samples += header.samples();
  chunk.losses[*part] = header.loss_sum();
  chunk.hits = addHits(chunk.hits, hitsOf(header));
  chunk.contribute(*part, std::move(payload), shard_.config_.deterministic, shard_.memory_);
  if (!chunk.complete()) return;
  if (shard_.norm_.clips()) {
    holdStep(chunk, out);
  } else {
    finishStep(chunk, out);
  }
}

void Shard::StepUpdates::park(ChunkState& chunk, const Header& header, CallId call, TimePoint now,
                              Answers& out) {
  // The same push again: the earlier call's caller has given it up.
  std::erase_if(chunk.parked, [&](const ChunkState::Parked& p) {
    if (p.worker != header.worker()) return false;
    out.push_back(
        shard_.refuse(p.call, header.chunk(), v1::CHUNK_NOT_READY, std::string(kAskedAgain)));
    return true;
  });
  chunk.parked.push_back({call, header.worker(), now});
}

// So many gradients make the chunk's next version.
int Shard::StepUpdates::quorum(const ChunkState& chunk) const {
  return shard_.plan_.quorum(chunk.version);
}

void Shard::StepUpdates::finishStep(ChunkState& chunk, Answers& out) {
  const UpdateContext context{chunk.version, shard_.learning_rate_.at(chunk.version)};
  shard_.capture(chunk);
  shard_.prepareMean(chunk);
  if (!chunk.kept.empty()) chunk.beginSum(shard_.memory_);
  for (std::int64_t at = 0; at < chunk.plan->elements; at += kUpdateBlock) {
    if (!shard_.averageBlock(chunk, at, out)) return;
    shard_.keepMean(chunk, at);
    shard_.updateBlock(chunk, context, at);
  }
  chunk.endSum();
  becomeNext(chunk, out);
}

void Shard::StepUpdates::becomeNext(ChunkState& chunk, Answers& out) {
  shard_.turnVersion(chunk);
  if (shard_.guarded_) return announce(chunk);
  tell(chunk, out);
}

// All callers get the newest version.
void Shard::StepUpdates::tell(ChunkState& chunk, Answers& out) {
  shard_.capture(chunk);
  shard_.answerParked(chunk, out);
  chunk.resetStep(quorum(chunk));
}

// The step that made the newest version is to be sent to the replica.
void Shard::StepUpdates::announce(ChunkState& chunk) {
  Header update;
  update.set_job_uid(shard_.config_.job_uid);
  update.set_epoch(shard_.epoch_);
  update.set_chunk(chunk.plan->id);
  update.set_step(chunk.version - 1);
  update.set_samples(static_cast<std::uint32_t>(chunk.last_step.samples));
  update.set_loss_sum(chunk.last_step.loss_sum);
  if (chunk.last_step.hits != kNotCounted) update.set_hits(chunk.last_step.hits);
  if (chunk.last_norm) update.set_gradient_norm(*chunk.last_norm);
  shard_.sendToReplica(chunk, std::move(update));
}

// False: the step cannot be the replica's next, nor the one that it has taken last.
bool Shard::StepUpdates::takeAsReplica(ChunkState& replica, const Header& header,
                                       std::unique_ptr<GradientPayload> payload) {
  // Now, or by a call that this one repeats.
  if (header.step() != replica.version) return header.step() == replica.version - 1;
  // The oldest version is needed no more: every worker that takes part in this step has pushed.
  replica.sum = std::move(replica.previous);
  if (replica.sum == nullptr || replica.sum.use_count() > 1)
    replica.sum = makeWeights(static_cast<std::size_t>(replica.plan->elements));
  const UpdateContext context{header.step(), shard_.learning_rate_.at(header.step())};
  for (std::int64_t at = 0; at < replica.plan->elements; at += kUpdateBlock) {
    payload->copyTo(blockOf(*replica.sum, at), static_cast<std::size_t>(at));
    shard_.updateBlock(replica, context, at);
  }
  replica.samples = header.samples();
  replica.losses = {header.loss_sum()};
  replica.hits = hitsOf(header);
  replica.last_norm.reset();
  if (header.has_gradient_norm()) replica.last_norm = header.gradient_norm();
  shard_.turnVersion(replica);
  return true;
}

bool Shard::StepUpdates::armsLast(bool restored) const {
  return !restored || shard_.plan_.first_step != shard_.plan_.steps;
}

}  // namespace trainyard::runtime::ps
