// Modes Async and BoundedDelay: each push is applied as it comes, chunk by chunk, to whatever
// version the chunk then has; the caller is answered with the outcome. A chunk's version counts its
// updates. With `aggregate` k, each k-th push that reaches a chunk updates it with the mean of the
// last k (weighted by samples); the others are answered at once with what is there.
//
// Between two updates, when the coordinator knows that no push is under way, all chunks of all
// servers have had the same pushes: then a snapshot is taken, and the coordinator names its
// version.
#include "fmt/format.h"
#include "runtime/ps/shard.h"

namespace trainyard::runtime::ps {

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
  chunk.parked.push_back({call, header.worker(), now});
  const ChunkState::PushKey push(header.worker_incarnation().created(),
                                 header.worker_incarnation().start(), header.push());
  // A push that comes again, because its answer was late or lost, is in already.
  if (const auto known = chunk.applied.find(header.worker());
      known == chunk.applied.end() || known->second < push) {
    chunk.applied[header.worker()] = push;
    const auto place = static_cast<std::uint32_t>(chunk.added);
    chunk.samples += header.samples();
    chunk.losses[place] = header.loss_sum();
    chunk.contribute(place, std::move(payload), false);
    if (chunk.complete()) return finishStep(chunk, header.step(), out);
  }
  answerParked(chunk, out);
}

// No push is under way. Gradients that wait for more of them (a worker has died) make a last
// update.
void Shard::settle(ChunkState& chunk, std::int64_t version) {
  if (chunk.added > 0) {
    std::vector<ChunkAnswer> nobody;
    finishStep(chunk, std::max<std::int64_t>(0, version - 1), nobody);
  }
  chunk.version = version;
}

}  // namespace trainyard::runtime::ps
