// The exact sum of squares of float32 numbers: the same whatever the order of the numbers, however
// they are cut into arrays, and in whatever order the arrays' sums are put together.
//
// The square of a float32 is a whole number of at most 48 bits times 2^(2e - 300), e its exponent
// field (1 for subnormal numbers): a multiple of 2^-298 below 2^256. 640 bits of fixed point hold
// 2^80 of them, so nothing is ever rounded before norm(). (The long accumulator of Kulisch and
// Miranker, "The Arithmetic of the Digital Computer: A New Approach", SIAM Review 28 (1986).)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace trainyard::runtime {

// A value; not thread-safe.
class SquareSum {
 public:
  static constexpr std::size_t kLimbs = 10;

  // Adds x[i]^2 for all i, subnormal numbers too. Precondition: all are finite (see allFinite()).
  void add(std::span<const float> x);
  void add(const SquareSum& other);

  // sqrt of the sum: the sum rounded to the nearest double (ties to even), then the rounded square
  // root. At most 1 ulp of the exact value; finite, and 0 only when every number was 0.
  double norm() const;

  // The sum in units of 2^-298, lowest limb first.
  const std::array<std::uint64_t, kLimbs>& limbs() const { return limbs_; }
  // nullopt unless there are kLimbs of them.
  static std::optional<SquareSum> fromLimbs(std::span<const std::uint64_t> limbs);

  bool operator==(const SquareSum&) const = default;

 private:
  void addShifted(std::uint64_t value, std::size_t bit);

  std::array<std::uint64_t, kLimbs> limbs_{};
};

}  // namespace trainyard::runtime
