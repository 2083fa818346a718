// Counter-based random numbers: a value is a function of (key, counter) alone, so that any process
// computes the same number for the same element whatever came before.
#pragma once

#include <cstdint>
#include <string_view>

namespace trainyard {

// Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2, 3",
// SC'11).
struct Philox4 {
  std::uint32_t v[4];
};
Philox4 philox(std::uint64_t key, std::uint64_t counter_low, std::uint64_t counter_high = 0);

// Mixes a name or number into a key (splitmix64 finaliser over FNV-1a).
std::uint64_t mixKey(std::uint64_t key, std::string_view name);
std::uint64_t mixKey(std::uint64_t key, std::uint64_t value);

// Uniform in [0, 1) with 24 bits, from 32 random bits.
inline float toUnitFloat(std::uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24f;
}

// A sequential generator for tests, jitter and identifiers; xoshiro256** seeded by splitmix64.
class Rng {
 public:
  explicit Rng(std::uint64_t seed);
  std::uint64_t next();
  // Uniform in [0, bound); bound > 0.
  std::uint64_t below(std::uint64_t bound);
  // Uniform in [0, 1).
  double unit();

 private:
  std::uint64_t s_[4];
};

}  // namespace trainyard
