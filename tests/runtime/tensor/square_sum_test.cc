#include "runtime/tensor/square_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/core/rng.h"
#include "gtest/gtest.h"
#include "runtime/tensor/kernels.h"

namespace trainyard::runtime {
namespace {

constexpr float kMax = std::numeric_limits<float>::max();
constexpr float kTiniest = std::numeric_limits<float>::denorm_min();

SquareSum sumOf(const std::vector<float>& x) {
  SquareSum sum;
  sum.add(x);
  return sum;
}

// Finite numbers of every exponent and sign, subnormal ones and zeros too.
std::vector<float> numbers(std::size_t n, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<float> x;
  while (x.size() < n) {
    const auto bits = static_cast<std::uint32_t>(rng.next());
    if ((bits & 0x7F800000u) != 0x7F800000u) x.push_back(std::bit_cast<float>(bits));
  }
  if (n > 3) x[0] = kMax, x[1] = -kTiniest, x[2] = -0.0f;
  return x;
}

// The Fisher-Yates shuffle.
void shuffle(std::vector<float>& x, Rng& rng) {
  for (std::size_t i = x.size(); i > 1; --i) std::swap(x[i - 1], x[rng.below(i)]);
}

TEST(SquareSum, OfNothingIsZero) {
  EXPECT_EQ(SquareSum().norm(), 0);
  EXPECT_EQ(sumOf({}), SquareSum());
  EXPECT_EQ(sumOf({0, -0.0f, 0}), SquareSum());
}

TEST(SquareSum, OfOneNumberIsItsMagnitude) {
  // 1.5 2^-149 and so on: x^2 fits a double, whose root is |x| again.
  for (const float x : {1.0f, -3.0f, 0.1f, 1e-20f, -1e20f, kMax, -kMax, kTiniest, 3 * kTiniest,
                        std::numeric_limits<float>::min(), 0x1.fffffep-127f}) {
    EXPECT_EQ(sumOf({x}).norm(), std::abs(static_cast<double>(x))) << x;
  }
  EXPECT_EQ(sumOf({3, 4}).norm(), 5);
  EXPECT_EQ(sumOf({3e-45f, -4e-45f}).norm(), std::hypot(double{3e-45f}, double{4e-45f}));
}

TEST(SquareSum, NeitherOrderNorCutsNorTreeMatter) {
  Rng rng(5);
  for (const std::size_t n : {1u, 2u, 7u, 64u, 1000u, 5003u}) {
    std::vector<float> x = numbers(n, n);
    const SquareSum want = sumOf(x);
    for (int trial = 0; trial < 5; ++trial) {
      shuffle(x, rng);
      EXPECT_EQ(sumOf(x), want) << n;
      // Random pieces, put together from the last to the first, each on top of the others.
      std::vector<SquareSum> pieces;
      for (std::span<const float> rest = x; !rest.empty();) {
        const std::size_t length = 1 + rng.below(rest.size());
        pieces.emplace_back();
        pieces.back().add(rest.first(length));
        rest = rest.subspan(length);
      }
      SquareSum total;
      for (auto it = pieces.rbegin(); it != pieces.rend(); ++it) total.add(*it);
      EXPECT_EQ(total, want) << n;
    }
  }
}

TEST(SquareSum, WhereLongDoubleIsExactTheNormIsTheSame) {
  // Squares of 26 bits and sums far below 2^64: not even a double rounds.
  Rng rng(9);
  std::vector<float> x;
  std::uint64_t exact = 0;
  for (int i = 0; i < 300000; ++i) {
    const auto value = static_cast<std::int64_t>(rng.below(1 << 14)) - (1 << 13);
    x.push_back(static_cast<float>(value) * 0x1p-20f);
    exact += static_cast<std::uint64_t>(value * value);
  }
  ASSERT_LT(exact, std::uint64_t{1} << 53);
  EXPECT_EQ(sumOf(x).norm(), std::sqrt(static_cast<double>(exact)) * 0x1p-20);
}

TEST(SquareSum, AgreesWithLongDoubleOverTheWholeRange) {
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    std::vector<float> x = numbers(20000, seed);
    // Also without the huge ones, which hide all others.
    for (const float limit : {kMax, 1.0f, 1e-30f, 1e-38f}) {
      std::erase_if(x, [&](float value) { return std::abs(value) > limit; });
      ASSERT_GT(x.size(), 10u);
      std::sort(x.begin(), x.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
      long double sum = 0;
      for (const float value : x) sum += static_cast<long double>(value) * value;
      const auto want = static_cast<double>(std::sqrt(sum));
      EXPECT_NEAR(sumOf(x).norm() / want, 1, 1e-15) << limit;
    }
  }
}

TEST(SquareSum, RoundsTheSumToTheNearestDouble) {
  // 2^106 + 2^53 is a tie, to even: 2^106. One more 2^-298 breaks it.
  std::vector<float> x = {0x1p53f, 0x1p26f, 0x1p26f};
  EXPECT_EQ(sumOf(x).norm(), std::sqrt(0x1p106));
  x.push_back(kTiniest);
  EXPECT_EQ(sumOf(x).norm(), std::sqrt(std::nextafter(0x1p106, kMax)));
}

TEST(SquareSum, CarriesOverEveryLimb) {
  // All bits of the lowest limbs set but for one unit; with it the carry runs through them all.
  std::vector<std::uint64_t> limbs(SquareSum::kLimbs, 0);
  for (std::size_t i = 0; i < 7; ++i) limbs[i] = ~std::uint64_t{0};
  auto sum = SquareSum::fromLimbs(limbs);
  ASSERT_TRUE(sum.has_value());
  sum->add(std::vector<float>{kTiniest});
  for (std::size_t i = 0; i < SquareSum::kLimbs; ++i) {
    EXPECT_EQ(sum->limbs()[i], i == 7 ? 1u : 0u) << i;
  }
  EXPECT_EQ(sum->norm(), std::sqrt(std::ldexp(1.0, 7 * 64 - 298)));
}

TEST(SquareSum, MoreThanATableTakesAtATime) {
  // 2^16 squares just below 2^48 fill an entry of 64 bits.
  const float x = std::nextafter(2.0f, 0.0f);
  const std::vector<float> many(700001, x);
  SquareSum one_by_one;
  SquareSum block;
  block.add(std::span(many).first(1000));
  for (int i = 0; i < 700; ++i) one_by_one.add(block);
  one_by_one.add(std::span(many).first(1));
  EXPECT_EQ(sumOf(many), one_by_one);
}

TEST(SquareSum, SubnormalNumbersCountWhateverTheThreadDoesWithThem) {
  const std::vector<float> x = {kTiniest, -5 * kTiniest, 1e-40f};
  const SquareSum want = sumOf(x);
  EXPECT_GT(want.norm(), 0);
  const FlushSubnormals flush;
  EXPECT_EQ(sumOf(x), want);
}

TEST(SquareSum, LimbsMakeTheSumAgain) {
  const SquareSum sum = sumOf(numbers(100, 4));
  EXPECT_EQ(SquareSum::fromLimbs(sum.limbs()), sum);
  EXPECT_EQ(SquareSum::fromLimbs(std::span(sum.limbs()).first(9)), std::nullopt);
  EXPECT_EQ(SquareSum::fromLimbs({}), std::nullopt);
}

}  // namespace
}  // namespace trainyard::runtime
