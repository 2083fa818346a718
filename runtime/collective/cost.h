// What each operation sends, by formula: checked against the counters of real runs, and what the
// bench foretells times from. n elements of b bytes, P ranks; D = n b.
//
//   all-reduce, ring               2 (P - 1) rounds        2 (P - 1)/P D bytes a rank
//   all-reduce, halving-doubling   2 log2 P rounds         2 (P - 1)/P D; where P is no power of
//   two,
//                                  2 more                  up to D more
//   all-reduce, doubling           log2 P rounds           D log2 P; likewise
//   all-reduce, direct             2 rounds                2 (P - 1)/P D, P - 1 messages a round
//   reduce-scatter                 P - 1 rounds            (P - 1)/P D
//   all-gather                     P - 1 rounds            (P - 1)/P D
//   broadcast, tree                ceil(log2 P) rounds     D for each child
//   broadcast, chain               P - 1 rounds            D, the last rank nothing
//   all-to-all                     1 round                 what it has for others
//   sum of sparse rows             those of three all-gathers (sparse.h)
//   barrier                        ceil(log2 P) rounds     nothing
//   all-reduce, hierarchical       those of one of the     over TCP that algorithm's for a slice of
//                                  first four among H      D/L among H hosts; in memory (P/H - 1)
//                                  hosts, and 2 meetings   D/L read and as much written
//
// (R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in
// MPICH", 2005.) Pure.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/collective/collective.h"
#include "runtime/collective/hosts.h"
#include "runtime/transport/message.h"

namespace trainyard::runtime::collective {

// Up to here an all-reduce takes doubling: a round costs more than what it carries. Up to the next
// halving and doubling, which has fewer rounds than the ring; two ranks do so always, in as many.
// Above, the ring: messages cut in segments, of which one travels while the next is put together.
inline constexpr std::int64_t kDoublingBytes = 16 * 1024;
inline constexpr std::int64_t kHalvingBytes = 4 * 1024 * 1024;
// Up to here a broadcast takes a tree, above a chain, likewise.
inline constexpr std::int64_t kTreeBytes = 256 * 1024;
// Of a segment; chosen by bench/all_reduce.cc.
inline constexpr std::int64_t kSegmentBytes = 256 * 1024;

struct Cost {
  std::int64_t rounds = 0;
  std::int64_t messages = 0;  // sent by the rank
  std::int64_t bytes = 0;     // sent by the rank
  bool operator==(const Cost&) const = default;
};

// Messages that a chunk of `bytes` is cut in.
std::int64_t segmentsOf(std::int64_t bytes);

Cost ringAllReduceCost(std::int64_t elements, std::int64_t element_bytes, int rank, int ranks);
Cost halvingDoublingCost(std::int64_t elements, std::int64_t element_bytes, int rank, int ranks);
Cost doublingCost(std::int64_t elements, std::int64_t element_bytes, int rank, int ranks);
// Of an all-reduce of so many bytes, where nothing else decides.
transport::Algorithm allReduceAlgorithmFor(std::int64_t bytes, int ranks);
// `wire_bytes` of an element as it travels.
Cost directAllReduceCost(std::int64_t elements, std::int64_t wire_bytes, int rank, int ranks);
Cost reduceScatterCost(std::int64_t elements, std::int64_t element_bytes, int rank, int ranks);
Cost allGatherCost(std::span<const std::int64_t> counts, std::int64_t element_bytes, int rank);
Cost broadcastCost(std::int64_t bytes, int root, int rank, int ranks);
Cost barrierCost(int ranks);
// `piece_bytes` of the arena's window. What is written in memory counts as sent; as much is read.
// Meetings are rounds: 2 for arrays in the arena, else 1 and 2 for each piece.
Cost hierarchicalAllReduceCost(std::int64_t elements, std::int64_t element_bytes,
                               std::int64_t piece_bytes, bool in_arena, const Hosts& hosts);

}  // namespace trainyard::runtime::collective
