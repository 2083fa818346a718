// The order in which samples are read.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace trainyard::runtime {

// More samples than this are refused where a pass is shuffled as one: its permutation is held in
// memory.
inline constexpr std::int64_t kMaxSamples = 100'000'000;
// In any other order.
inline constexpr std::int64_t kMaxOrderedSamples = std::int64_t{1} << 40;
// A block's permutation is held in memory.
inline constexpr std::int64_t kMaxBlockSamples = 1'000'000;

// data.order of a job.
struct SampleOrder {
  enum class Kind { kShuffled, kBlocks, kSequential };
  Kind kind = Kind::kShuffled;
  std::int64_t block_samples = 0;  // kBlocks: 1 to kMaxBlockSamples

  std::int64_t maxSamples() const {
    return kind == Kind::kShuffled ? kMaxSamples : kMaxOrderedSamples;
  }
};

// The endless stream of pass 0, pass 1, ... over `samples` samples: each has every sample once. The
// sample at a position is a function of (seed, samples, order, position) alone. Part of what a
// checkpoint means: none of it must ever change.
//
// kShuffled: position p is sample permutation(seed, p / samples)[p % samples]. permutation(seed,
// pass) is Fisher-Yates from the last element down to the second, i = samples - 1 .. 1: element i
// changes places with element j in [0, i]. j comes from the high halves of
// Rng(mixKey(mixKey(seed, "sample stream"), pass)), multiplied by i + 1 and shifted right by 32,
// with Lemire's rejection ("Fast Random Integer Generation in an Interval", 2019), so that every
// order is equally likely. Memory: 4 bytes a sample, for each of the last two passes met.
//
// kBlocks: blocks of block_samples neighbours, of which the last may be shorter, in an order of
// the pass's own, and each shuffled inside as a pass is above, with the generator's key
// mixKey(mixKey(mixKey(seed, "block"), pass), block). The place of the shorter block is drawn; the
// others are put in order by swap-or-not (Hoang, Morris, Rogaway: "An Enciphering Scheme Based on a
// Card Shuffle", CRYPTO 2012), 64 rounds, about 1 us a block. Memory: 4 bytes a sample of one
// block.
//
// kSequential: position p is sample p % samples.
class SampleStream {
 public:
  // Precondition: 1 <= samples <= order.maxSamples().
  SampleStream(std::uint64_t seed, std::int64_t samples, SampleOrder order = {});
  // Sample numbers of positions [first, first + out.size()), first >= 0, across pass ends. Not
  // thread-safe.
  void lookUp(std::int64_t first, std::span<std::int64_t> out);

 private:
  // Positions that one permutation, or none, says the samples of.
  struct Run {
    std::int64_t first_sample;                // of those that are permuted
    std::int64_t offset;                      // of the position among them
    std::int64_t size;                        // how many there are
    const std::vector<std::uint32_t>* order;  // null: they are not permuted
  };
  struct Permutation {
    std::int64_t pass = -1;
    std::int64_t block = -1;
    std::vector<std::uint32_t> order;
  };

  Run runAt(std::int64_t position);
  Run blockAt(std::int64_t pass, std::int64_t offset);
  const std::vector<std::uint32_t>& passOrder(std::int64_t pass);
  const std::vector<std::uint32_t>& blockOrder(std::int64_t pass, std::int64_t block,
                                               std::int64_t size);

  const std::uint64_t seed_;
  const std::int64_t samples_;
  const SampleOrder order_;
  std::array<Permutation, 2> passes_;  // pass p in element p % 2
  Permutation block_;
};

// Rank r's slice [begin, end) of n evaluation samples, sizes differing by at most one.
std::pair<std::int64_t, std::int64_t> evaluationSlice(std::int64_t n, int ranks, int rank);

}  // namespace trainyard::runtime
