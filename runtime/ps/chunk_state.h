// One chunk on its server: two version buffers, the running sum, the optimizer's slots, parked
// calls.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "base/core/clock.h"
#include "runtime/data/number_set.h"
#include "runtime/optimizer/optimizer.h"
#include "runtime/placement/placement.h"
#include "trainyard/v1/parameter_server.pb.h"

namespace trainyard::runtime::ps {

using CallId = std::uint64_t;

// A pushed gradient as it arrived. The rim's implementation walks the wire's slices.
class GradientPayload {
 public:
  virtual ~GradientPayload() = default;
  virtual std::size_t sizeBytes() const = 0;
  // out[i] = x[i] / acc[i] += x[i] for all elements; the span is exactly as long as the payload.
  virtual void copyTo(std::span<float> out) const = 0;
  virtual void addTo(std::span<float> acc) const = 0;
};

// Weights of one version. Answers on their way to a socket share it, so it is never written while
// more than its owner holds it.
using Weights = std::vector<float>;

struct ChunkAnswer {
  CallId call = 0;
  v1::ChunkReplyHeader header;
  std::shared_ptr<const Weights> payload;  // null unless header.code is CHUNK_OK
};

// Guarded by `mutex`, by way of a ChunkLock. The sum of a step grows in `sum`, which takes the
// memory of `previous`.
struct ChunkState {
  ChunkState(const Chunk& chunk, bool without_common_steps)
      : plan(&chunk), asynchronous(without_common_steps) {}

  const Chunk* const plan;
  const bool asynchronous;

  std::mutex mutex;
  // The version that others may know of, to be read without the mutex, which is held while a chunk
  // is copied or updated; -1: nothing loaded.
  std::atomic<std::int64_t> told = -1;
  std::int64_t version = -1;  // of `current`; -1: nothing loaded
  std::shared_ptr<Weights> current;
  std::shared_ptr<Weights> previous;  // version - 1, or null
  std::vector<std::vector<float>> slots;

  // The step in progress (== version).
  std::shared_ptr<Weights> sum;  // null: nothing added yet
  std::vector<bool> pushed;      // by rank
  std::vector<std::unique_ptr<GradientPayload>>
      waiting;    // by rank; deterministic: not yet its turn
  int added = 0;  // payloads in `sum`
  std::uint64_t samples = 0;
  std::vector<double> losses;  // by rank
  struct Parked {
    CallId call;
    std::uint32_t worker;
    TimePoint since;
  };
  std::vector<Parked> parked;

  // Replicated: `current` (asynchronous modes: the newest push) is not yet with the replica, and
  // nobody has been told of it. What goes there is kept in memory of its own.
  bool unconfirmed = false;
  std::shared_ptr<Weights> mean;
  // Asynchronous modes: pushes that have come meanwhile.
  struct Later {
    v1::ChunkRequestHeader header;
    std::unique_ptr<GradientPayload> payload;
    CallId call = 0;
    TimePoint since{};
  };
  std::deque<Later> later;

  // Asynchronous modes: by worker, its newest push that is in; pushes of a newer process are newer.
  using PushKey = std::tuple<std::uint32_t, std::uint32_t, std::int64_t>;  // created, start, push
  std::map<std::uint32_t, PushKey> applied;
  // Of all pushes that are in since weights were loaded: what a new coordinator goes by.
  NumberSet pushed_tickets;
  NumberSet pushed_samples;

  // Of the step that made `current`.
  std::uint64_t last_samples = 0;
  double last_loss_sum = 0;
  std::optional<double> last_norm;  // with clipping
  // Of the step that made `previous`.
  std::uint64_t previous_samples = 0;
  double previous_loss_sum = 0;

  // Sets `told`: what is not with the replica is nobody's to know, but for a push.
  void publish() { told = version - (version >= 0 && unconfirmed && !asynchronous ? 1 : 0); }
  // Forgets the step in progress; the gradients of ranks [0, ranks) make the next one.
  void resetStep(int ranks);
  bool complete() const;
  // Adds a push that is not in yet. With `in_rank_order` it may be kept until its turn.
  void contribute(std::uint32_t rank, std::unique_ptr<GradientPayload> payload, bool in_rank_order);
  // Ranks that have not pushed, as "0,3".
  std::string missingRanks() const;

 private:
  void add(const GradientPayload& payload);
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
