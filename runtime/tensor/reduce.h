// Putting arrays of several ranks together, element by element, and the 16-bit floats they may
// travel as. Every ISA variant gives the scalar loop's bits (see kernels.h). Thread-safe for arrays
// that do not overlap.
//
// Arrays are bytes at any address and are counted in elements. 16-bit floats are widened to
// float32, put together there and rounded to nearest, ties to even. Integer sums and products wrap
// around. Minimum and maximum of floats are NaN when either operand is. The sum of booleans is
// whether any is true.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/tensor/element_type.h"

namespace trainyard::runtime {

// The numbers are sent between processes.
enum class ReduceOp : std::uint8_t {
  kSum = 0,
  kMin = 1,
  kMax = 2,
  kProduct = 3,
  kBitAnd = 4,  // bit by bit; not of floats
  kBitOr = 5,
  kBitXor = 6,
  // A sum that is divided afterwards, by whoever has put all parts together: named, so that a rank
  // that sums finds out about one that averages.
  kAverage = 7,
};
inline constexpr int kReduceOps = 8;
std::string_view nameOf(ReduceOp op);  // "sum"
// False for bits of floats. The functions below do not take such pairs.
bool isDefined(ElementType type, ReduceOp op);

// acc[i] = acc[i] op x[i] for i < n. `acc` and `x` do not overlap.
void reduceInto(ElementType type, ReduceOp op, std::byte* acc, const std::byte* x, std::int64_t n);

// every targets[t][i] = ((sources[0][i] op sources[1][i]) op sources[2][i]) ... for i < n: in the
// order of the sources, each operation rounded. A target may be one of the sources; otherwise
// arrays do not overlap. Precondition: 1 <= sources.size() <= kMaxSources.
inline constexpr std::size_t kMaxSources = 256;
void reduceAcross(ElementType type, ReduceOp op, std::span<const std::byte* const> sources,
                  std::span<std::byte* const> targets, std::int64_t n);

// x[i] = x[i] / divisor: an IEEE division for floats, rounded towards zero for integers.
// Precondition: divisor > 0 and fits the type, or an int where that is narrower; no booleans.
void divideElements(ElementType type, std::byte* x, std::int64_t n, std::int64_t divisor);

// x[i] = x[i] * factor; the factor is rounded to float32 first, to float64 where the type is that.
// Precondition: floats.
void scaleElements(ElementType type, std::byte* x, std::int64_t n, double factor);

// float32 to and from float16 or bfloat16. What exceeds float16's range becomes infinite.
// Precondition: `type` is one of the two. `narrow` and `wide` do not overlap.
void narrowFloats(ElementType type, std::byte* narrow, const std::byte* wide, std::int64_t n);
void widenFloats(ElementType type, std::byte* wide, const std::byte* narrow, std::int64_t n);

// acc[i] += x[i] for i < n, `x` of float16 or bfloat16: each is widened, the sum is float32's.
// Precondition: `type` is one of the two. `acc` and `x` do not overlap.
void addWidened(ElementType type, float* acc, const std::byte* x, std::int64_t n);
// What x[i] becomes where it is narrowed and widened again. Precondition: as above.
void roundFloats(ElementType type, std::span<float> x);

}  // namespace trainyard::runtime
