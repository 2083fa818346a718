// One chunk on its server: two version buffers, the running sum, the optimizer's slots, parked
// calls.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "base/core/clock.h"
#include "runtime/checkpoint/slot_arrays.h"
#include "runtime/data/number_set.h"
#include "runtime/optimizer/optimizer.h"
#include "runtime/placement/placement.h"
#include "runtime/train/gradient.h"
#include "trainyard/v1/parameter_server.pb.h"

namespace trainyard::runtime::ps {

using CallId = std::uint64_t;

// A pushed gradient as it arrived.
class GradientPayload {
 public:
  virtual ~GradientPayload() = default;
  virtual std::size_t sizeBytes() const = 0;
  // Of each element in that.
  virtual std::size_t elementBytes() const { return sizeof(float); }
  // out[i] = x[at + i] / acc[i] += x[at + i] for all elements of the span, which the payload has.
  virtual void copyTo(std::span<float> out, std::size_t at) const = 0;
  virtual void addTo(std::span<float> acc, std::size_t at) const = 0;
};

// Bytes that a gradient of all of the chunk has, with elements as those of `payload`; it may be
// null.
std::size_t gradientBytes(const Chunk& chunk, const GradientPayload* payload);

// Weights of one version. Answers on their way to a socket share it, so it is never written while
// more than its owner holds it.
using Weights = std::pmr::vector<float>;
// Where a shard takes memory for them from; null: the process's own.
using WeightsMemory = std::shared_ptr<std::pmr::memory_resource>;
// All zero.
std::shared_ptr<Weights> makeWeights(std::size_t elements, const WeightsMemory& memory = nullptr);

struct ChunkAnswer {
  CallId call = 0;
  v1::ChunkReplyHeader header;
  std::shared_ptr<const Weights> payload;  // null unless header.code is CHUNK_OK
};

// What a push says of its samples.
inline std::int64_t hitsOf(const v1::ChunkRequestHeader& header) {
  return header.has_hits() ? header.hits() : kNotCounted;
}

// What all who had a part in a step brought beside their gradients.
struct StepTally {
  std::uint64_t samples = 0;
  double loss_sum = 0;
  std::int64_t hits = kNotCounted;
};

// Guarded by `mutex`, by way of a ChunkLock. The gradients of a step are kept until all are there,
// or added as they come where that may be long (`sums_early`); their sum takes the memory of
// `previous`.
struct ChunkState {
  explicit ChunkState(const Chunk& chunk, bool adds_early = true)
      : plan(&chunk), sums_early(adds_early) {}
  virtual ~ChunkState() = default;
  ChunkState(const ChunkState&) = delete;
  ChunkState& operator=(const ChunkState&) = delete;

  const Chunk* const plan;
  const bool sums_early;

  std::mutex mutex;
  // The version that others may know of, to be read without the mutex, which is held while a chunk
  // is copied or updated; -1: nothing loaded.
  std::atomic<std::int64_t> told = -1;
  std::int64_t version = -1;  // of `current`; -1: nothing loaded
  std::shared_ptr<Weights> current;
  std::shared_ptr<Weights> previous;  // version - 1, or null
  SlotArrays slots;

  // The step in progress (== version).
  std::shared_ptr<Weights> sum;  // null: nothing added yet
  std::vector<bool> pushed;      // by rank
  std::vector<std::unique_ptr<GradientPayload>>
      waiting;                                         // by rank; deterministic: not yet its turn
  std::vector<std::unique_ptr<GradientPayload>> kept;  // to be added, in this order
  int added = 0;                                       // payloads in `sum` or kept
  std::uint64_t samples = 0;
  std::vector<double> losses;  // by rank
  std::int64_t hits = 0;       // of `samples`, or kNotCounted
  struct Parked {
    CallId call;
    std::uint32_t worker;
    TimePoint since;
  };
  std::vector<Parked> parked;

  // Replicated: the newest step or push is not yet with the replica, and nobody has been told of
  // it. What goes there is kept in memory of its own.
  bool unconfirmed = false;
  std::shared_ptr<Weights> mean;

  StepTally last_step;              // that made `current`
  StepTally previous_step;          // that made `previous`
  std::optional<double> last_norm;  // of last_step, with clipping

  // The newest that others may know of.
  virtual std::int64_t publicVersion() const = 0;
  void publish() { told = publicVersion(); }
  // Forgets the step in progress; the gradients of ranks [0, ranks) make the next one.
  void resetStep(int ranks);
  bool complete() const;
  // Adds a push that is not in yet. With `in_rank_order` it may be kept until its turn.
  void contribute(std::uint32_t rank, std::unique_ptr<GradientPayload> payload, bool in_rank_order,
                  const WeightsMemory& memory = nullptr);
  // Before sumBlock(): memory for the sum of what is kept, the oldest version's where that comes
  // from `memory` and nobody else still reads it.
  void beginSum(const WeightsMemory& memory = nullptr);
  // The sum of what is kept, for as many elements from `at` on; after the last block endSum().
  void sumBlock(std::span<float> block, std::size_t at) const;
  void endSum() { kept.clear(); }
  // Ranks that have not pushed, as "0,3".
  std::string missingRanks() const;

 private:
  void add(std::unique_ptr<GradientPayload> payload, const WeightsMemory& memory);
};

// In modes with common steps: versions are steps.
struct StepChunk final : ChunkState {
  using ChunkState::ChunkState;
  // What is not with the replica is nobody's to know.
  std::int64_t publicVersion() const override {
    return version - (version >= 0 && unconfirmed ? 1 : 0);
  }
};

// In the asynchronous modes: versions are updates, and each push is in or not.
struct PushChunk final : ChunkState {
  using ChunkState::ChunkState;
  // A push counts at once.
  std::int64_t publicVersion() const override { return version; }

  // Pushes that have come while the newest was not with the replica.
  struct Later {
    v1::ChunkRequestHeader header;
    std::unique_ptr<GradientPayload> payload;
    CallId call = 0;
    TimePoint since{};
  };
  std::deque<Later> later;

  // By worker, its newest push that is in; pushes of a newer process are newer.
  using PushKey = std::tuple<std::uint32_t, std::uint32_t, std::int64_t>;  // created, start, push
  std::map<std::uint32_t, PushKey> applied;
  // Of all pushes that are in since weights were loaded: what a new coordinator goes by.
  NumberSet pushed_tickets;
  NumberSet pushed_samples;
};

// Holds a chunk; when it lets go, what has become of the version meanwhile can be seen.
class ChunkLock {
 public:
  explicit ChunkLock(ChunkState& chunk) : chunk_(chunk), lock_(chunk.mutex) {}
  ~ChunkLock() { chunk_.publish(); }
  ChunkLock(const ChunkLock&) = delete;
  ChunkLock& operator=(const ChunkLock&) = delete;

 private:
  ChunkState& chunk_;
  const std::lock_guard<std::mutex> lock_;
};

}  // namespace trainyard::runtime::ps
