#include "runtime/ps/chunk_body.h"

#include <memory>
#include <utility>

#include "fmt/format.h"

namespace trainyard::runtime::ps {
namespace {

// Of any rule; see Shard. What says more is not believed.
constexpr std::uint32_t kMostSlots = 4;

// Calls `f` with each array of the chunk, in the order of the body.
template <typename Chunk, typename F>
void eachArray(Chunk& chunk, F f) {
  for (const auto& array : {chunk.weights, chunk.previous}) {
    if (array != nullptr) f(*array);
  }
  for (auto& slot : chunk.slots) f(slot);
  if (chunk.sum != nullptr) f(*chunk.sum);
}

}  // namespace

ChunkFrame frameOf(GivenChunk chunk) {
  struct Kept {
    GivenChunk chunk;
    std::string record;
  };
  const auto kept = std::make_shared<Kept>();
  kept->record = chunk.record.SerializeAsString();
  kept->chunk = std::move(chunk);
  v1::FetchChunkReply reply;
  reply.set_version(kept->chunk.version);
  reply.set_record_bytes(static_cast<std::uint32_t>(kept->record.size()));
  reply.set_weights(kept->chunk.weights != nullptr);
  reply.set_previous(kept->chunk.previous != nullptr);
  reply.set_slots(static_cast<std::uint32_t>(kept->chunk.slots.size()));
  reply.set_sum(kept->chunk.sum != nullptr);
  ChunkFrame frame;
  frame.header = reply.SerializeAsString();
  frame.body.push_back({std::as_bytes(std::span(kept->record)), kept});
  eachArray(kept->chunk, [&](std::span<const float> array) {
    frame.body.push_back({std::as_bytes(array), kept});
  });
  return frame;
}

StatusOr<ArrivingChunk> ArrivingChunk::make(std::string_view header, std::int64_t elements,
                                            std::uint64_t body_bytes) {
  v1::FetchChunkReply reply;
  if (!reply.ParseFromArray(header.data(), static_cast<int>(header.size())))
    return absl::DataLossError("a chunk's head that cannot be read");
  if (reply.slots() > kMostSlots)
    return absl::DataLossError(fmt::format("{} slots of a chunk", reply.slots()));
  const std::uint64_t arrays = (reply.weights() ? 1U : 0U) + (reply.previous() ? 1U : 0U) +
                               reply.slots() + (reply.sum() ? 1U : 0U);
  const auto n = static_cast<std::size_t>(elements);
  const std::uint64_t expected = reply.record_bytes() + arrays * n * sizeof(float);
  if (body_bytes != expected) {
    return absl::DataLossError(
        fmt::format("{} bytes of a chunk, expected {}", body_bytes, expected));
  }
  ArrivingChunk arriving;
  arriving.record_.resize(reply.record_bytes());
  GivenChunk& chunk = arriving.chunk_;
  chunk.version = reply.version();
  if (reply.weights()) chunk.weights = std::make_shared<Weights>(n);
  if (reply.previous()) chunk.previous = std::make_shared<Weights>(n);
  for (std::uint32_t i = 0; i < reply.slots(); ++i) chunk.slots.emplace_back(n);
  if (reply.sum()) chunk.sum = std::make_shared<Weights>(n);
  return arriving;
}

std::vector<std::span<std::byte>> ArrivingChunk::body() {
  std::vector<std::span<std::byte>> body = {std::as_writable_bytes(std::span(record_))};
  eachArray(chunk_, [&](std::span<float> array) { body.push_back(std::as_writable_bytes(array)); });
  return body;
}

StatusOr<GivenChunk> ArrivingChunk::take() && {
  if (!chunk_.record.ParseFromString(record_))
    return absl::DataLossError("a chunk's record that cannot be read");
  return std::move(chunk_);
}

}  // namespace trainyard::runtime::ps
