// The operations of the C interface over those of runtime/collective: what they check, copy, scale
// and put together. Each is carried out by one thread at a time and waits for the other ranks.
//
// INVALID_ARGUMENT means that nothing was sent. Arrays are not owned.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "base/core/status.h"
#include "runtime/collective/collective.h"
#include "runtime/collective/plan.h"

namespace trainyard::runtime::client {

using collective::Array;
using collective::Collective;
using collective::Reduction;

struct NamedArray {
  Array array;
  std::string name;  // "": none
};

struct Reducing {
  Reduction reduction = Reduction::kSum;
  double prescale = 1;
  double postscale = 1;
};
// Whether `type` can be put together so.
Status checkReducing(ElementType type, const Reducing& reducing);

// Elements that each rank has; without any all have the same.
using Counts = std::vector<std::int64_t>;

// Memory that operations need, kept from one to the next: the first touch of a page is dear.
class Staging {
 public:
  // At least `bytes`, aligned for every type; what it holds is not specified.
  std::byte* get(std::size_t bytes);

 private:
  std::vector<std::byte> memory_;
};

// Which arrays travel as one operation: [begin, end) of what all have given, small neighbours of
// one type together. Pure, and the same on all ranks for the same sizes and types.
struct Batch {
  std::size_t begin = 0;
  std::size_t end = 0;
};
// One, as mostly, costs no allocation.
using Batches = absl::InlinedVector<Batch, 1>;
Batches batchesOf(std::span<const NamedArray> arrays);

Status allReduce(Collective& collective, std::span<const NamedArray> arrays,
                 const Reducing& reducing, Staging& staging);
Status reduceScatter(Collective& collective, const Array& input, const Counts& counts,
                     const Array& output, const Reducing& reducing, Staging& staging);
Status allGather(Collective& collective, const Array& input, const Array& output,
                 const Counts& counts);
Status allToAll(Collective& collective, const Array& send, const Counts& send_counts,
                const Array& receive, const Counts& receive_counts);

// comparePlans(), after which the group goes on. A rank that is in another operation ends it.
Status compare(Collective& collective, std::span<const collective::PlannedTensor> plan);

}  // namespace trainyard::runtime::client
