// How large the buckets of gradients are to be, found by trying: the first steps of a run take
// sizes in turn, then the ranks put their times together and all take the same. Pure: no clock, no
// group.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/collective/plan.h"

namespace trainyard::runtime::ring {

// The first bucket is small in any case.
collective::BucketSizes bucketsOf(std::int64_t bytes);

// Those of `sizes`, ascending, that make other buckets of `tensors` than the ones before them.
std::vector<std::int64_t> differingSizes(std::span<const collective::PlannedTensor> tensors,
                                         std::span<const std::int64_t> sizes);

// A step is taken with size(); then took() is called, or choose() where reports() said true before
// the step. All ranks do so for the same steps.
class BucketTuner {
 public:
  // The first steps, in which memory is touched for the first time, count for nothing.
  static constexpr int kWarmUp = 2;
  static constexpr int kTries = 5;  // of each size, by turns, as a run gets faster or slower

  // `sizes` as of differingSizes(), at least one; one alone is chosen at once.
  explicit BucketTuner(std::vector<std::int64_t> sizes);

  std::int64_t size() const;
  void took(double seconds);

  // All is tried: the next step brings times() beside its sums, and choose() is given their sum.
  bool reports() const;
  // The median of each size, in seconds.
  std::vector<double> times() const;
  // Sums over `ranks` ranks. The fastest is chosen, the smaller of two that are equal.
  void choose(std::span<const double> sums, int ranks);

  std::int64_t chosen() const { return chosen_; }  // 0: not yet
  // What all ranks of a new group have agreed on: a size, or 0 to begin anew.
  void agree(std::int64_t chosen);

  const std::vector<std::int64_t>& sizes() const { return sizes_; }
  // "buckets of 4 MiB are the fastest: steps took 11.2 ms with 1 MiB, 10.1 ms with 4 MiB"; after
  // choose().
  std::string summary() const;

 private:
  const std::vector<std::int64_t> sizes_;
  std::int64_t chosen_ = 0;
  int steps_ = 0;                           // taken since the beginning
  std::vector<std::vector<double>> taken_;  // by size
  std::vector<double> means_;               // over the ranks, once chosen
};

}  // namespace trainyard::runtime::ring
