#include "runtime/tensor/square_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/core/check.h"

namespace trainyard::runtime {
namespace {

constexpr int kUnit = -298;  // exponent of the lowest bit
constexpr std::size_t kExponents = 256;
// Tables that take turns: an element does not wait for the one before it, which mostly has the
// same exponent.
constexpr std::size_t kTables = 4;
// Squares below 2^48 that a 64-bit entry takes.
constexpr std::size_t kBlock = kTables << 16;

struct Tables {
  std::uint64_t sum[kTables][kExponents] = {};
};

inline void addSquare(std::uint64_t* table, float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t exponent = (bits >> 23) & 0xFFu;
  const std::uint64_t mantissa = (bits & 0x7FFFFFu) | (exponent != 0 ? 0x800000u : 0u);
  table[exponent] += mantissa * mantissa;
}

}  // namespace

void SquareSum::addShifted(std::uint64_t value, std::size_t bit) {
  std::size_t limb = bit / 64;
  const std::size_t shift = bit % 64;
  std::uint64_t parts[2] = {value << shift, shift == 0 ? 0 : value >> (64 - shift)};
  std::uint64_t carry = 0;
  for (std::size_t i = 0; i < 2 || carry != 0; ++i, ++limb) {
    const std::uint64_t part = i < 2 ? parts[i] : 0;
    if (limb == kLimbs) {
      TY_CHECK(part == 0 && carry == 0, "the sum of 2^80 squares fits");
      return;
    }
    // At most one of the two additions carries.
    limbs_[limb] += part;
    std::uint64_t next = limbs_[limb] < part ? 1 : 0;
    limbs_[limb] += carry;
    next |= limbs_[limb] < carry ? 1 : 0;
    carry = next;
  }
}

void SquareSum::add(std::span<const float> x) {
  while (!x.empty()) {
    const std::span<const float> block = x.first(std::min(x.size(), kBlock));
    x = x.subspan(block.size());
    Tables tables;
    std::size_t i = 0;
    for (; i + kTables <= block.size(); i += kTables) {
      for (std::size_t t = 0; t < kTables; ++t) addSquare(tables.sum[t], block[i + t]);
    }
    for (; i < block.size(); ++i) addSquare(tables.sum[i % kTables], block[i]);
    for (const auto& table : tables.sum) {
      for (std::size_t e = 0; e < kExponents; ++e) {
        // 2^(2e - 300) is bit 2e - 2; subnormal numbers have the exponent of field 1.
        if (table[e] != 0) addShifted(table[e], 2 * std::max<std::size_t>(e, 1) - 2);
      }
    }
  }
}

void SquareSum::add(const SquareSum& other) {
  for (std::size_t i = 0; i < kLimbs; ++i) addShifted(other.limbs_[i], 64 * i);
}

double SquareSum::norm() const {
  std::size_t top = kLimbs;
  while (top > 0 && limbs_[top - 1] == 0) --top;
  if (top == 0) return 0;
  // The 64 leading bits, the last of them set when anything follows: rounding them to 53 is
  // rounding the whole number.
  const std::uint64_t high = limbs_[top - 1];
  const std::uint64_t low = top > 1 ? limbs_[top - 2] : 0;
  const int zeros = std::countl_zero(high);
  std::uint64_t leading = zeros == 0 ? high : (high << zeros) | (low >> (64 - zeros));
  bool more = zeros != 0 ? (low << zeros) != 0 : low != 0;
  for (std::size_t i = 0; i + 2 < top; ++i) more = more || limbs_[i] != 0;
  if (more) leading |= 1;
  const int exponent = kUnit + 64 * static_cast<int>(top - 1) - zeros;
  return std::sqrt(std::ldexp(static_cast<double>(leading), exponent));
}

std::optional<SquareSum> SquareSum::fromLimbs(std::span<const std::uint64_t> limbs) {
  if (limbs.size() != kLimbs) return std::nullopt;
  SquareSum sum;
  std::copy(limbs.begin(), limbs.end(), sum.limbs_.begin());
  return sum;
}

}  // namespace trainyard::runtime
