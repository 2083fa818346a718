// Ring algorithms. Vocabulary: the array is cut into one slice for each rank, a slice into
// segments. A round moves one slice from every rank to the next; segment j of round t can leave as
// soon as segment j of round t - 1 has arrived, so that several rounds are under way at once.
//
// Reducing: in round t = 0 .. P-2 rank r sends slice r-1-t and puts slice r-2-t together with what
// arrives; the last to arrive is slice r, with every rank's part in it. Gathering: in round
// t = 0 .. P-2 it sends slice r-t and stores slice r-1-t. All modulo P.
//
// All receives are posted at once. A gathered slice is stored over one that was sent while
// reducing, which is safe: what arrives was made from what was sent.
#include <algorithm>

#include "runtime/collective/cost.h"
#include "runtime/collective/internal/call.h"

namespace trainyard::runtime::collective::internal {
namespace {

int modulo(int a, int n) {
  return ((a % n) + n) % n;
}

// Ranges of slices, by rank, and their common number of segments.
struct Slices {
  std::vector<Range> ranges;
  std::int64_t segments = 1;

  Array segment(const Array& array, int slice, std::int64_t j) const {
    const Range range = ranges[static_cast<std::size_t>(slice)];
    return array.slice(range.begin + range.size() * j / segments,
                       range.begin + range.size() * (j + 1) / segments);
  }
};

Slices evenSlices(const Array& array, int ranks) {
  Slices slices;
  for (int r = 0; r < ranks; ++r) slices.ranges.push_back(sliceOf(array.elements, r, ranks));
  slices.segments =
      segmentsOf(slices.ranges[0].size() * static_cast<std::int64_t>(sizeOf(array.type)));
  return slices;
}

// Rounds [0, reduce) put together, the others store.
struct Rounds {
  int reduce = 0;
  int gather = 0;
};

Status runRing(Call& call, const Array& array, const Slices& slices, Rounds rounds,
               std::int64_t divisor) {
  const int ranks = call.size();
  const int rank = call.rank();
  const int left = modulo(rank - 1, ranks);
  const int right = modulo(rank + 1, ranks);
  const std::int64_t segments = slices.segments;
  const auto part = [&](int round, std::int64_t j) {
    return static_cast<std::uint32_t>(round * segments + j);
  };
  const int total = rounds.reduce + rounds.gather;
  std::uint64_t first = 0;  // the number of the first message from the left
  for (int t = 0; t < total; ++t) {
    const bool reduces = t < rounds.reduce;
    const int slice = modulo(reduces ? rank - 2 - t : rank - 1 - (t - rounds.reduce), ranks);
    for (std::int64_t j = 0; j < segments; ++j) {
      const Array into = slices.segment(array, slice, j);
      const std::uint64_t number = reduces ? call.receiveReduce(left, part(t, j), into)
                                           : call.receive(left, part(t, j), into);
      if (first == 0) first = number;
    }
  }
  const auto arrived = [&](int round, std::int64_t j) {
    return call.received(left, first + part(round, j), round);
  };
  std::uint64_t last_sent = 0;
  for (int t = 0; t < total; ++t) {
    const bool reduces = t < rounds.reduce;
    const int slice = modulo(reduces ? rank - 1 - t : rank - (t - rounds.reduce), ranks);
    for (std::int64_t j = 0; j < segments; ++j) {
      const Array segment = slices.segment(array, slice, j);
      if (t > 0) TY_RETURN_IF_ERROR(arrived(t - 1, j));
      if (t > 0 && t == rounds.reduce) divide(segment, divisor);
      last_sent = call.send(right, part(t, j), segment);
    }
  }
  for (std::int64_t j = 0; j < segments; ++j) {
    TY_RETURN_IF_ERROR(arrived(total - 1, j));
    if (rounds.gather == 0) divide(slices.segment(array, rank, j), divisor);
  }
  return call.sent(right, last_sent, total - 1);
}

}  // namespace

Status ringAllReduce(Call& call, const Array& array, std::int64_t divisor) {
  const int rounds = call.size() - 1;
  return runRing(call, array, evenSlices(array, call.size()), {rounds, rounds}, divisor);
}

Status ringReduceScatter(Call& call, const Array& array, std::int64_t divisor) {
  return runRing(call, array, evenSlices(array, call.size()), {call.size() - 1, 0}, divisor);
}

Status ringAllGather(Call& call, const Array& array, std::span<const std::int64_t> counts) {
  Slices slices;
  std::int64_t begin = 0;
  for (const std::int64_t count : counts) {
    slices.ranges.push_back({begin, begin + count});
    begin += count;
  }
  const std::int64_t largest = *std::max_element(counts.begin(), counts.end());
  slices.segments = segmentsOf(largest * static_cast<std::int64_t>(sizeOf(array.type)));
  return runRing(call, array, slices, {0, call.size() - 1}, 1);
}

}  // namespace trainyard::runtime::collective::internal
