// The order in which samples are read.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace trainyard::runtime {

// More samples than this are refused: permutations are held in memory.
inline constexpr std::int64_t kMaxSamples = 100'000'000;

// The endless stream permutation(seed, pass 0), permutation(seed, pass 1), ... over `samples`
// samples. Position p is sample permutation(seed, p / samples)[p % samples]; a function of p alone.
//
// permutation(seed, pass) is Fisher-Yates from the last element down to the second, i = samples - 1
// .. 1: element i changes places with element j in [0, i]. j comes from the high halves of
// Rng(mixKey(mixKey(seed, "sample stream"), pass)), multiplied by i + 1 and shifted right by 32,
// with Lemire's rejection ("Fast Random Integer Generation in an Interval", 2019), so that every
// order is equally likely. Part of what a checkpoint means: it must never change.
class SampleStream {
 public:
  // Precondition: 1 <= samples <= kMaxSamples.
  SampleStream(std::uint64_t seed, std::int64_t samples);
  // Sample numbers of positions [first, first + out.size()), first >= 0, across pass ends. Keeps
  // the permutations of the last two passes met; not thread-safe.
  void lookUp(std::int64_t first, std::span<std::int64_t> out);

 private:
  const std::vector<std::uint32_t>& permutation(std::int64_t pass);
  std::uint64_t seed_;
  std::int64_t samples_;
  struct Pass {
    std::int64_t number = -1;
    std::vector<std::uint32_t> order;
  };
  std::array<Pass, 2> passes_;  // pass p in element p % 2
};

// Rank r's slice [begin, end) of n evaluation samples, sizes differing by at most one.
std::pair<std::int64_t, std::int64_t> evaluationSlice(std::int64_t n, int ranks, int rank);

}  // namespace trainyard::runtime
