// Numbers of which few are frequent and most are rare, as the ids of users and things are.
#pragma once

#include <cstdint>

namespace trainyard::runtime::internal {

// Ranks 1 .. n, rank k with a probability proportional to k^-1.05; any n costs the same memory and
// time. By rejection-inversion (Hörmann, Derflinger: "Rejection-inversion to generate variates from
// monotone discrete distributions", ACM TOMACS 6 (3), 1996). Immutable; thread-safe.
class Zipf {
 public:
  static constexpr double kExponent = 1.05;
  static constexpr std::int64_t kMaxRanks = 1'000'000'000'000;

  // Precondition: 1 <= ranks <= kMaxRanks.
  explicit Zipf(std::int64_t ranks);
  // A function of (key, counter) alone.
  std::int64_t draw(std::uint64_t key, std::uint64_t counter) const;
  std::int64_t ranks() const { return ranks_; }
  // Of a rank, to about nine digits.
  double probability(std::int64_t rank) const;

 private:
  std::int64_t ranks_;
  double low_;   // of the integral under k^-1.05, what is drawn from
  double high_;  // uniformly
  double sure_;  // a point at most so far below its rank is always taken
  double sum_;   // of all k^-1.05
};

}  // namespace trainyard::runtime::internal
