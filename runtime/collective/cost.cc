#include "runtime/collective/cost.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace trainyard::runtime::collective {
namespace {

int ceilLog2(int ranks) {
  return std::bit_width(static_cast<unsigned>(ranks - 1));
}

// Of the slices of all ranks but one.
std::int64_t bytesWithout(std::int64_t elements, std::int64_t element_bytes, int slice, int ranks) {
  return (elements - sliceOf(elements, slice % ranks, ranks).size()) * element_bytes;
}

}  // namespace

std::int64_t segmentsOf(std::int64_t bytes) {
  return std::max<std::int64_t>(1, (bytes + kSegmentBytes - 1) / kSegmentBytes);
}

Cost ringAllReduceCost(std::int64_t elements, std::int64_t element_bytes, int rank, int ranks) {
  if (ranks == 1) return {};
  const std::int64_t segments = segmentsOf(sliceOf(elements, 0, ranks).size() * element_bytes);
  const std::int64_t rounds = 2 * (ranks - 1);
  // Reducing, it sends all slices but its own; gathering, all but the next rank's.
  return {rounds, rounds * segments,
          bytesWithout(elements, element_bytes, rank, ranks) +
              bytesWithout(elements, element_bytes, rank + 1, ranks)};
}

Cost halvingDoublingCost(std::int64_t elements, std::int64_t element_bytes, int rank, int ranks) {
  if (ranks == 1) return {};
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)));
  const int extra = ranks - power;
  const std::int64_t log = ceilLog2(power);
  const std::int64_t rounds = 2 * log + (extra > 0 ? 2 : 0);
  const std::int64_t all = elements * element_bytes;
  if (rank >= power) return {rounds, 1, all};
  // Halving, it keeps the same half of what is left as its partner of that distance gives away.
  Range range{0, elements};
  std::int64_t bytes = 0;
  for (int distance = power / 2; distance > 0; distance /= 2) {
    const std::int64_t middle = range.begin + range.size() / 2;
    const Range lower{range.begin, middle};
    const Range upper{middle, range.end};
    const bool keeps_lower = (rank & distance) == 0;
    bytes += (keeps_lower ? upper : lower).size() * element_bytes;
    range = keeps_lower ? lower : upper;
    bytes += range.size() * element_bytes;  // and sends that back on the way out
  }
  const bool folds = rank < extra;
  return {rounds, 2 * log + (folds ? 1 : 0), bytes + (folds ? all : 0)};
}

Cost doublingCost(std::int64_t elements, std::int64_t element_bytes, int rank, int ranks) {
  if (ranks == 1) return {};
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)));
  const int extra = ranks - power;
  const std::int64_t log = ceilLog2(power);
  const std::int64_t rounds = log + (extra > 0 ? 2 : 0);
  const std::int64_t messages = rank >= power ? 1 : log + (rank < extra ? 1 : 0);
  return {rounds, messages, messages * elements * element_bytes};
}

transport::Algorithm allReduceAlgorithmFor(std::int64_t bytes, int ranks) {
  if (bytes <= kDoublingBytes) return transport::Algorithm::kDoubling;
  return bytes <= kHalvingBytes || ranks == 2 ? transport::Algorithm::kHalvingDoubling
                                              : transport::Algorithm::kRing;
}

Cost directAllReduceCost(std::int64_t elements, std::int64_t wire_bytes, int rank, int ranks) {
  if (ranks == 1) return {};
  const std::int64_t own = sliceOf(elements, rank, ranks).size();
  const std::int64_t segments = segmentsOf(sliceOf(elements, 0, ranks).size() * wire_bytes);
  return {2, 2 * (ranks - 1) * segments, (elements - own + (ranks - 1) * own) * wire_bytes};
}

Cost reduceScatterCost(std::int64_t elements, std::int64_t element_bytes, int rank, int ranks) {
  if (ranks == 1) return {};
  const std::int64_t segments = segmentsOf(sliceOf(elements, 0, ranks).size() * element_bytes);
  return {ranks - 1, (ranks - 1) * segments, bytesWithout(elements, element_bytes, rank, ranks)};
}

Cost allGatherCost(std::span<const std::int64_t> counts, std::int64_t element_bytes, int rank) {
  const auto ranks = static_cast<std::int64_t>(counts.size());
  if (ranks == 1) return {};
  const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const std::int64_t largest = *std::max_element(counts.begin(), counts.end());
  const std::int64_t next = counts[static_cast<std::size_t>((rank + 1) % ranks)];
  return {ranks - 1, (ranks - 1) * segmentsOf(largest * element_bytes),
          (total - next) * element_bytes};
}

Cost broadcastCost(std::int64_t bytes, int root, int rank, int ranks) {
  if (ranks == 1) return {};
  const int place = (rank - root + ranks) % ranks;
  if (bytes > kTreeBytes) {
    const std::int64_t segments = place == ranks - 1 ? 0 : segmentsOf(bytes);
    return {ranks - 1, segments, segments == 0 ? 0 : bytes};
  }
  std::int64_t children = 0;
  for (int distance = 1; distance < ranks; distance *= 2) {
    // Place p is reached by the round of its highest bit and sends in the later ones.
    if (place < distance && place + distance < ranks) ++children;
  }
  return {ceilLog2(ranks), children, children * bytes};
}

Cost barrierCost(int ranks) {
  if (ranks == 1) return {};
  return {ceilLog2(ranks), ceilLog2(ranks), 0};
}

Cost hierarchicalAllReduceCost(std::int64_t elements, std::int64_t element_bytes,
                               std::int64_t piece_bytes, bool in_arena, const Hosts& hosts) {
  const std::int64_t step = piece_bytes / element_bytes;
  const std::int64_t pieces = (elements + step - 1) / step;
  Cost cost{in_arena ? 2 : 1 + 2 * pieces, 0, 0};
  if (hosts.place >= hosts.lanes()) return cost;
  cost.messages = 1;  // to the next host: which operation it is
  const auto others = static_cast<std::int64_t>(hosts.local().size()) - 1;
  for (std::int64_t b = 0; b < elements; b += step) {
    const std::int64_t piece = std::min(step, elements - b);
    const std::int64_t slice = sliceOf(piece, hosts.place, hosts.lanes()).size();
    const auto algorithm = allReduceAlgorithmFor(slice * element_bytes, hosts.count());
    const auto formula = algorithm == transport::Algorithm::kDoubling ? doublingCost
                         : algorithm == transport::Algorithm::kRing   ? ringAllReduceCost
                                                                      : halvingDoublingCost;
    const Cost between = formula(slice, element_bytes, hosts.host, hosts.count());
    cost.rounds += between.rounds;
    cost.messages += between.messages;
    cost.bytes += between.bytes + others * slice * element_bytes;
  }
  return cost;
}

}  // namespace trainyard::runtime::collective
