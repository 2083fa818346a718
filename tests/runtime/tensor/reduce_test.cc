#include "runtime/tensor/reduce.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/core/rng.h"
#include "gtest/gtest.h"
#include "runtime/tensor/internal/half.h"
#include "runtime/tensor/internal/reduce_variants.h"

namespace trainyard::runtime {
namespace {

using internal::Isa;

std::vector<std::byte> randomBytes(std::size_t n, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<std::byte> bytes(n);
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng.next());
  return bytes;
}

// Bits of NaN results may depend on the operands' order, which the compiler may change.
bool sameNumbers(ElementType type, const std::vector<std::byte>& a,
                 const std::vector<std::byte>& b) {
  if (a == b) return true;
  if (!isFloat(type)) return false;
  const std::size_t size = sizeOf(type);
  for (std::size_t at = 0; at < a.size(); at += size) {
    if (std::memcmp(&a[at], &b[at], size) == 0) continue;
    double x[2];
    for (int k = 0; k < 2; ++k) {
      const std::byte* from = (k == 0 ? a : b).data() + at;
      float wide = 0;
      if (size == 2) widenFloats(type, reinterpret_cast<std::byte*>(&wide), from, 1);
      if (size == 4) std::memcpy(&wide, from, 4);
      x[k] = wide;
      if (size == 8) std::memcpy(&x[k], from, 8);
    }
    if (!std::isnan(x[0]) || !std::isnan(x[1])) return false;
  }
  return true;
}

TEST(ReduceTest, EveryInstructionSetGivesTheSameBitsAtAnyAddress) {
  constexpr std::int64_t kCount = 1003;
  for (int t = 0; t < kElementTypes; ++t) {
    const auto type = static_cast<ElementType>(t);
    const std::size_t bytes = kCount * sizeOf(type);
    for (int o = 0; o < kReduceOps; ++o) {
      const auto op = static_cast<ReduceOp>(o);
      if (!isDefined(type, op)) continue;
      const auto first = randomBytes(bytes, 1);
      const auto second = randomBytes(bytes + 1, 2);  // from an odd address
      auto expected = first;
      internal::reduceInto(Isa::kBaseline, type, op, expected.data(), second.data() + 1, kCount);
      for (const Isa isa : internal::supportedIsas()) {
        auto got = first;
        internal::reduceInto(isa, type, op, got.data(), second.data() + 1, kCount);
        EXPECT_TRUE(sameNumbers(type, got, expected)) << nameOf(type) << " " << nameOf(op);
      }
    }
  }
}

TEST(ReduceTest, AcrossIsOneAfterTheOther) {
  constexpr std::int64_t kCount = 5001;  // more than a block
  for (const std::size_t ranks : {1, 2, 3, 4, 5, 9}) {
    for (const ElementType type : {ElementType::kFloat32, ElementType::kInt64}) {
      std::vector<std::vector<std::byte>> arrays;
      std::vector<const std::byte*> sources;
      std::vector<std::byte*> targets;
      for (std::size_t r = 0; r < ranks; ++r) {
        std::vector<std::byte> array(kCount * sizeOf(type));
        for (std::int64_t i = 0; i < kCount; ++i) {
          const float f = std::ldexp(1.0f + static_cast<float>(i % 97) / 97.0f,
                                     static_cast<int>((i + static_cast<int>(r) * 7) % 30) - 15);
          if (type == ElementType::kFloat32) std::memcpy(&array[4 * i], &f, 4);
          if (type == ElementType::kInt64) std::memcpy(&array[8 * i], &i, 8);
        }
        arrays.push_back(std::move(array));
      }
      auto expected = arrays[0];
      for (std::size_t r = 1; r < ranks; ++r) {
        reduceInto(type, ReduceOp::kSum, expected.data(), arrays[r].data(), kCount);
      }
      for (auto& array : arrays) {
        sources.push_back(array.data());
        targets.push_back(array.data());
      }
      reduceAcross(type, ReduceOp::kSum, sources, targets, kCount);
      for (const auto& array : arrays) EXPECT_EQ(array, expected) << ranks << nameOf(type);
    }
  }
}

TEST(ReduceTest, SmallIntegersKeepTheirBitsAndBooleansAreZeroOrOne) {
  const auto bytes = [](std::initializer_list<int> values) {
    std::vector<std::byte> made;
    for (const int v : values) made.push_back(static_cast<std::byte>(v));
    return made;
  };
  const auto apply = [](ElementType type, ReduceOp op, std::vector<std::byte> a,
                        const std::vector<std::byte>& b) {
    reduceInto(type, op, a.data(), b.data(), static_cast<std::int64_t>(a.size()));
    return a;
  };
  EXPECT_EQ(apply(ElementType::kUint8, ReduceOp::kSum, bytes({200, 1}), bytes({100, 255})),
            bytes({44, 0}));
  EXPECT_EQ(apply(ElementType::kUint8, ReduceOp::kMax, bytes({200, 1}), bytes({100, 255})),
            bytes({200, 255}));
  EXPECT_EQ(apply(ElementType::kInt8, ReduceOp::kMax, bytes({200, 1}), bytes({100, 255})),
            bytes({100, 1}));
  EXPECT_EQ(apply(ElementType::kInt8, ReduceOp::kProduct, bytes({-3, 100}), bytes({5, 3})),
            bytes({-15, 44}));
  EXPECT_EQ(apply(ElementType::kUint8, ReduceOp::kBitXor, bytes({0xF0}), bytes({0xFF})),
            bytes({0x0F}));
  EXPECT_EQ(apply(ElementType::kBool, ReduceOp::kSum, bytes({1, 7, 0}), bytes({1, 0, 0})),
            bytes({1, 1, 0}));
  EXPECT_EQ(apply(ElementType::kBool, ReduceOp::kProduct, bytes({1, 7, 0}), bytes({9, 0, 1})),
            bytes({1, 0, 0}));
}

TEST(ReduceTest, ScalesEveryFloat) {
  for (const ElementType type : {ElementType::kFloat32, ElementType::kFloat16,
                                 ElementType::kBFloat16, ElementType::kFloat64}) {
    for (const Isa isa : internal::supportedIsas()) {
      std::vector<double> wide = {1.5, -8, 0};
      std::vector<std::byte> x(3 * sizeOf(type));
      const std::vector<float> narrow = {1.5f, -8.0f, 0.0f};
      const auto* floats = reinterpret_cast<const std::byte*>(narrow.data());
      if (sizeOf(type) == 2) narrowFloats(type, x.data(), floats, 3);
      if (sizeOf(type) == 4) std::memcpy(x.data(), floats, 12);
      if (sizeOf(type) == 8) std::memcpy(x.data(), wide.data(), 24);
      internal::scaleElements(isa, type, x.data(), 3, 0.25);
      std::vector<float> got(3);
      if (sizeOf(type) == 2)
        widenFloats(type, reinterpret_cast<std::byte*>(got.data()), x.data(), 3);
      if (sizeOf(type) == 4) std::memcpy(got.data(), x.data(), 12);
      if (sizeOf(type) == 8) {
        std::memcpy(wide.data(), x.data(), 24);
        got = {wide.begin(), wide.end()};
      }
      EXPECT_EQ(got, (std::vector<float>{0.375f, -2.0f, 0.0f})) << nameOf(type);
    }
  }
}

TEST(ReduceTest, SumsOf16BitsAreThoseOfWidenedFloats) {
  constexpr std::int64_t kCount = 1003;
  for (const ElementType type : {ElementType::kFloat16, ElementType::kBFloat16}) {
    std::vector<float> acc(kCount);
    std::vector<float> wide(kCount);
    Rng rng(7);
    for (std::int64_t i = 0; i < kCount; ++i) {
      acc[i] = static_cast<float>(i) / 7.0f;
      wide[i] = std::ldexp(static_cast<float>(rng.next() % 4096) / 4096.0f - 0.5f,
                           static_cast<int>(i % 40) - 30);
    }
    std::vector<std::byte> narrow(2 * kCount + 1);  // at an odd address
    narrowFloats(type, narrow.data() + 1, reinterpret_cast<const std::byte*>(wide.data()), kCount);
    std::vector<float> rounded(kCount);
    widenFloats(type, reinterpret_cast<std::byte*>(rounded.data()), narrow.data() + 1, kCount);
    EXPECT_NE(rounded, wide);
    std::vector<float> expected = acc;
    for (std::int64_t i = 0; i < kCount; ++i) expected[i] += rounded[i];
    for (const Isa isa : internal::supportedIsas()) {
      auto got = acc;
      internal::addWidened(isa, type, got.data(), narrow.data() + 1, kCount);
      EXPECT_EQ(got, expected) << nameOf(type) << " " << internal::isaName(isa);
      got = wide;
      internal::roundFloats(isa, type, got);
      EXPECT_EQ(got, rounded) << nameOf(type) << " " << internal::isaName(isa);
    }
  }
}

float exactHalf(std::uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int mantissa = half & 1023;
  const float sign = (half & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  if (exponent < 31) return sign * std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
  return mantissa == 0 ? sign * std::numeric_limits<float>::infinity()
                       : std::numeric_limits<float>::quiet_NaN();
}

TEST(ReduceTest, EveryHalfGoesToItsFloatAndBack) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float expected = exactHalf(half);
    const float got = internal::halfToFloat(half);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(got));
      continue;
    }
    EXPECT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(expected)) << bits;
    EXPECT_EQ(internal::floatToHalf(got), half);
    // A quarter of the way to the next one goes back; half of it to the even one.
    const float next = exactHalf(static_cast<std::uint16_t>(half + 1));
    if ((half & 0x7C00) == 0x7C00 || std::isinf(next) || std::isnan(next)) continue;
    EXPECT_EQ(internal::floatToHalf(got + (next - got) / 4), half);
    const auto even = static_cast<std::uint16_t>(half + (half & 1));
    EXPECT_EQ(internal::floatToHalf(got + (next - got) / 2), even) << bits;
  }
  EXPECT_EQ(internal::floatToHalf(65520.0f), 0x7C00);  // the first that is out of range
  EXPECT_EQ(internal::floatToHalf(65519.0f), 0x7BFF);
  EXPECT_EQ(internal::floatToHalf(std::numeric_limits<float>::infinity()), 0x7C00);
  EXPECT_TRUE(std::isnan(
      internal::halfToFloat(internal::floatToHalf(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(ReduceTest, BfloatIsTheNearestUpperHalf) {
  const auto rounded = [](std::uint32_t bits) {
    return internal::floatToBfloat(std::bit_cast<float>(bits));
  };
  EXPECT_EQ(rounded(0x3F800000), 0x3F80);
  EXPECT_EQ(rounded(0x3F807FFF), 0x3F80);
  EXPECT_EQ(rounded(0x3F808000), 0x3F80);  // a tie, to even
  EXPECT_EQ(rounded(0x3F808001), 0x3F81);
  EXPECT_EQ(rounded(0x3F818000), 0x3F82);  // a tie, to even
  EXPECT_EQ(rounded(0x7F7FFFFF), 0x7F80);
  EXPECT_TRUE(std::isnan(internal::bfloatToFloat(rounded(0x7F800001))));
  EXPECT_EQ(internal::bfloatToFloat(0xC040), -3.0f);
}

TEST(ReduceTest, MinimumAndMaximumKeepNotANumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    float acc[] = {nan, 1.0f, 2.0f};
    const float x[] = {1.0f, nan, -2.0f};
    reduceInto(ElementType::kFloat32, op, reinterpret_cast<std::byte*>(acc),
               reinterpret_cast<const std::byte*>(x), 3);
    EXPECT_TRUE(std::isnan(acc[0]));
    EXPECT_TRUE(std::isnan(acc[1]));
    EXPECT_EQ(acc[2], op == ReduceOp::kMin ? -2.0f : 2.0f);
  }
}

TEST(ReduceTest, IntegersWrapAroundAndAreDividedTowardsZero) {
  std::int32_t acc[] = {std::numeric_limits<std::int32_t>::max(), -7, 7};
  const std::int32_t x[] = {1, 0, 0};
  reduceInto(ElementType::kInt32, ReduceOp::kSum, reinterpret_cast<std::byte*>(acc),
             reinterpret_cast<const std::byte*>(x), 3);
  EXPECT_EQ(acc[0], std::numeric_limits<std::int32_t>::min());
  divideElements(ElementType::kInt32, reinterpret_cast<std::byte*>(acc), 3, 2);
  EXPECT_EQ(acc[1], -3);
  EXPECT_EQ(acc[2], 3);
}

}  // namespace
}  // namespace trainyard::runtime
