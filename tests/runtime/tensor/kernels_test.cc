#include "runtime/tensor/kernels.h"

#include <bit>
#include <cstring>
#include <limits>
#include <vector>

#include "base/core/rng.h"
#include "gtest/gtest.h"
#include "runtime/tensor/internal/kernel_variants.h"

namespace trainyard::runtime {
namespace {

using internal::Isa;

// Lengths around every vector width, and one of several blocks.
const std::vector<std::int64_t> kLengths = {0,  1,  2,  3,  4,  5,  7,   8,    9,    15,   16,   17,
                                            31, 32, 33, 63, 64, 65, 127, 1000, 4095, 4097, 10007};

// Finite floats of all magnitudes and signs, subnormal ones too.
std::vector<float> randomFloats(std::int64_t n, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<float> out;
  while (static_cast<std::int64_t>(out.size()) < n) {
    const auto bits = static_cast<std::uint32_t>(rng.next());
    // Every other one near 1, where sums round; the rest over the whole range.
    const std::uint32_t exponent =
        (out.size() % 2 == 0) ? 120u + (bits >> 23) % 16u : (bits >> 23) % 254u;
    out.push_back(std::bit_cast<float>((bits & 0x807FFFFFu) | (exponent << 23)));
  }
  return out;
}

std::uint32_t bitsOf(float x) {
  return std::bit_cast<std::uint32_t>(x);
}

// Volatile keeps the reference scalar.
float scalarAdd(float a, float b) {
  volatile float x = a;
  volatile float y = b;
  return x + y;
}
float scalarMultiply(float a, float b) {
  volatile float x = a;
  volatile float y = b;
  return x * y;
}
float scalarDivide(float a, float b) {
  volatile float x = a;
  volatile float y = b;
  return x / y;
}

class EveryIsa : public testing::TestWithParam<Isa> {};

TEST_P(EveryIsa, AddGivesScalarBitsAtAnyAddress) {
  for (const std::int64_t n : kLengths) {
    const std::vector<float> x = randomFloats(n, 2 * n + 1);
    const std::vector<float> start = randomFloats(n + 2, 3 * n + 7);
    for (const int shift : {0, 1, 2, 3, 5, 8, 13}) {
      std::vector<std::byte> wire(4 * n + 32, std::byte{0xA5});
      if (n > 0) std::memcpy(wire.data() + shift, x.data(), 4 * n);
      std::vector<float> acc = start;
      internal::addFloats(GetParam(), acc.data() + 1, wire.data() + shift, n);
      EXPECT_EQ(bitsOf(acc.front()), bitsOf(start.front()));
      EXPECT_EQ(bitsOf(acc.back()), bitsOf(start.back()));
      for (std::int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(bitsOf(acc[i + 1]), bitsOf(scalarAdd(start[i + 1], x[i])))
            << "n " << n << " shift " << shift << " element " << i;
      }
    }
  }
}

TEST_P(EveryIsa, DivideGivesScalarBits) {
  for (const std::int64_t n : kLengths) {
    const std::vector<float> start = randomFloats(n, 5 * n + 3);
    for (const float divisor : {1.0f, 3.0f, 128.0f, 255.0f, 1e-3f}) {
      std::vector<float> x = start;
      internal::divideFloats(GetParam(), x, divisor);
      for (std::int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(bitsOf(x[i]), bitsOf(scalarDivide(start[i], divisor)))
            << "n " << n << " at " << i;
      }
    }
  }
}

TEST_P(EveryIsa, ScaleGivesScalarBits) {
  for (const std::int64_t n : kLengths) {
    const std::vector<float> start = randomFloats(n, 7 * n + 2);
    for (const float factor : {1.0f, 0.1f, 0.99999994f, 1e-30f}) {
      std::vector<float> x = start;
      internal::scaleFloats(GetParam(), x, factor);
      for (std::int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(bitsOf(x[i]), bitsOf(scalarMultiply(start[i], factor)))
            << "n " << n << " at " << i;
      }
    }
  }
}

TEST_P(EveryIsa, FiniteSeesOneBadElementAnywhere) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const std::int64_t n : kLengths) {
    std::vector<float> x = randomFloats(n, n);
    if (n > 0) x[0] = std::numeric_limits<float>::max();
    EXPECT_TRUE(internal::allFinite(GetParam(), x)) << n;
    const std::int64_t stride = std::max<std::int64_t>(1, n / 61);
    for (std::int64_t at = n - 1; at >= 0; at -= stride) {
      for (const float bad : {kInf, -kInf, kNan, -kNan, std::bit_cast<float>(0x7F800001u)}) {
        const float good = x[at];
        std::memcpy(&x[at], &bad, 4);
        ASSERT_FALSE(internal::allFinite(GetParam(), x)) << "n " << n << " at " << at;
        x[at] = good;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, EveryIsa,
                         testing::ValuesIn(internal::supportedIsas().begin(),
                                           internal::supportedIsas().end()),
                         [](const auto& info) { return internal::isaName(info.param); });

TEST(Kernels, PublicFunctionsUseTheBestVariant) {
  std::vector<float> acc = {1, 2, 3};
  const std::vector<float> x = {0.5f, -2, 9};
  addFloats(acc.data(), reinterpret_cast<const std::byte*>(x.data()), 3);
  EXPECT_EQ(acc, (std::vector<float>{1.5f, 0, 12}));
  divideFloats(acc, 3);
  EXPECT_EQ(acc, (std::vector<float>{0.5f, 0, 4}));
  scaleFloats(acc, 0.5f);
  EXPECT_EQ(acc, (std::vector<float>{0.25f, 0, 2}));
  EXPECT_TRUE(allFinite(acc));
  acc[1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(allFinite(acc));
}

TEST(Kernels, WhatIsCopiedIsLookedAt) {
  for (const std::int64_t n : kLengths) {
    std::vector<float> from = randomFloats(n, n);
    std::vector<float> to(from.size());
    EXPECT_TRUE(copyFinite(from, to)) << n;
    EXPECT_EQ(to, from);
    if (n == 0) continue;
    from.back() = std::numeric_limits<float>::infinity();
    EXPECT_FALSE(copyFinite(from, to)) << n;
  }
}

#if defined(__x86_64__)
TEST(Kernels, FlushSubnormalsEndsWithItsScope) {
  volatile float tiny = std::numeric_limits<float>::min();
  {
    const FlushSubnormals flush;
    const float half = tiny * 0.5f;
    EXPECT_EQ(bitsOf(half), 0u);
  }
  const float half = tiny * 0.5f;
  EXPECT_EQ(bitsOf(half), 0x00400000u);
}
#endif

}  // namespace
}  // namespace trainyard::runtime
