// Collective operations of a group of ranks, on arrays in memory, in place. All ranks call the same
// operations in the same order with the same types and sizes; a rank that calls another one is
// found out, and the operation fails on all ranks; on one that only sends in it, the next one may.
//
// An operation returns when this rank's array holds its result and may be used again. It waits at
// most CollectiveOptions::timeout. After a failure the group is of no more use: every later call
// returns the first failure, which names the rank that it is due to
// (transport::blamedRank()), the operation and the round. Codes as in transport/transport.h.
//
// Belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "runtime/tensor/reduce.h"
#include "runtime/transport/transport.h"

namespace trainyard::runtime::collective {

// Elements of one type in memory; not owned.
struct Array {
  std::byte* data = nullptr;
  std::int64_t elements = 0;
  ElementType type = ElementType::kFloat32;

  std::size_t bytes() const { return static_cast<std::size_t>(elements) * sizeOf(type); }
  Array slice(std::int64_t begin, std::int64_t end) const {
    return {data + static_cast<std::size_t>(begin) * sizeOf(type), end - begin, type};
  }
};
inline Array arrayOf(std::span<float> x) {
  return {reinterpret_cast<std::byte*>(x.data()), static_cast<std::int64_t>(x.size())};
}

// kAverage: the sum, divided once by the number of ranks; integers are rounded towards zero, and
// booleans have none. Bits are not of floats.
enum class Reduction { kSum, kAverage, kMin, kMax, kProduct, kBitAnd, kBitOr, kBitXor };

// The part of `elements` that belongs to `rank`: even up to one element, the larger ones first.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
};
Range sliceOf(std::int64_t elements, int rank, int ranks);

// What an operation costs one rank, payload only; see cost.h for what it should.
struct Totals {
  std::uint64_t operations = 0;
  std::uint64_t rounds = 0;  // exchanges that wait for one another
  std::uint64_t messages_sent = 0;
  std::uint64_t bytes_sent = 0;      // shared memory: written to other ranks' memory
  std::uint64_t bytes_received = 0;  // shared memory: read from it
  Duration seconds{};                // in operations, waiting included
};

class Collective {
 public:
  virtual ~Collective() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Every rank's array becomes the reduction over all ranks. The same bits on all ranks.
  virtual Status allReduce(const Array& array, Reduction reduction) = 0;
  // The slice of `array` that belongs to this rank (sliceOf) becomes the reduction; what the rest
  // of `array` holds afterwards is not specified.
  virtual Status reduceScatter(const Array& array, Reduction reduction) = 0;
  // Rank r brings counts[r] elements at offset counts[0] + ... + counts[r - 1]; afterwards every
  // array holds those of all ranks. INVALID_ARGUMENT unless the counts make up the array.
  virtual Status allGather(const Array& array, std::span<const std::int64_t> counts) = 0;
  // Every rank's array becomes that of `root`.
  virtual Status broadcast(const Array& array, int root) = 0;
  // send_counts[r] elements of `send`, one after the other, go to rank r; receive_counts[r] come
  // from it, one after the other in `receive`. The arrays do not overlap. All ranks give the same
  // total of elements over all pairs in `total`, by which they are known to mean the same
  // operation.
  virtual Status allToAll(const Array& send, std::span<const std::int64_t> send_counts,
                          const Array& receive, std::span<const std::int64_t> receive_counts,
                          std::int64_t total) = 0;
  // Returns when all ranks have called it.
  virtual Status barrier() = 0;

  virtual Totals totals() const = 0;
  // Ends the group: the others fail with `status`. For a rank that cannot go on.
  virtual void abort(const Status& status) = 0;
};

}  // namespace trainyard::runtime::collective
