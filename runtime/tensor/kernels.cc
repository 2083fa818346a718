#include "runtime/tensor/kernels.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "runtime/tensor/internal/kernel_variants.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace trainyard::runtime {
namespace {

static_assert(std::endian::native == std::endian::little, "wire floats are added as they are");

struct AddLoop {
  static TY_ALWAYS_INLINE void run(float* acc, const std::byte* x, std::int64_t n) {
    float* __restrict to = acc;
    const std::byte* __restrict from = x;
    for (std::int64_t i = 0; i < n; ++i) {
      float value;
      std::memcpy(&value, from + 4 * i, 4);
      to[i] += value;
    }
  }
};

struct DivideLoop {
  static TY_ALWAYS_INLINE void run(float* x, std::int64_t n, float divisor) {
    for (std::int64_t i = 0; i < n; ++i) x[i] /= divisor;
  }
};

struct ScaleLoop {
  static TY_ALWAYS_INLINE void run(float* x, std::int64_t n, float factor) {
    for (std::int64_t i = 0; i < n; ++i) x[i] *= factor;
  }
};

// NaN and infinity are the floats whose exponent bits are all set. Integer arithmetic, so that the
// reduction may be done in any order; blocks, so that a bad array is left early.
struct FiniteLoop {
  static TY_ALWAYS_INLINE bool run(const float* x, std::int64_t n) {
    constexpr std::int64_t kBlock = 4096;
    constexpr std::uint32_t kExponent = 0x7F800000u;
    for (std::int64_t begin = 0; begin < n; begin += kBlock) {
      const std::int64_t end = std::min(n, begin + kBlock);
      std::uint32_t bad = 0;
      for (std::int64_t i = begin; i < end; ++i) {
        std::uint32_t bits;
        std::memcpy(&bits, x + i, 4);
        bad |= (bits & kExponent) == kExponent ? 1u : 0u;
      }
      if (bad != 0) return false;
    }
    return true;
  }
};

}  // namespace

namespace internal {

void addFloats(Isa isa, float* acc, const std::byte* x, std::int64_t n) {
  runOn<AddLoop>(isa, acc, x, n);
}

void divideFloats(Isa isa, std::span<float> x, float divisor) {
  runOn<DivideLoop>(isa, x.data(), static_cast<std::int64_t>(x.size()), divisor);
}

void scaleFloats(Isa isa, std::span<float> x, float factor) {
  runOn<ScaleLoop>(isa, x.data(), static_cast<std::int64_t>(x.size()), factor);
}

bool allFinite(Isa isa, std::span<const float> x) {
  return runOn<FiniteLoop>(isa, x.data(), static_cast<std::int64_t>(x.size()));
}

}  // namespace internal

void addFloats(float* acc, const std::byte* x, std::int64_t n) {
  internal::addFloats(internal::bestIsa(), acc, x, n);
}

void divideFloats(std::span<float> x, float divisor) {
  internal::divideFloats(internal::bestIsa(), x, divisor);
}

void scaleFloats(std::span<float> x, float factor) {
  internal::scaleFloats(internal::bestIsa(), x, factor);
}

bool allFinite(std::span<const float> x) {
  return internal::allFinite(internal::bestIsa(), x);
}

// In blocks that stay in the L1 cache between the two.
bool copyFinite(std::span<const float> from, std::span<float> to) {
  constexpr std::size_t kBlock = 2048;
  for (std::size_t at = 0; at < from.size(); at += kBlock) {
    const std::span<const float> block = from.subspan(at, std::min(kBlock, from.size() - at));
    if (!allFinite(block)) return false;
    std::ranges::copy(block, to.begin() + static_cast<std::ptrdiff_t>(at));
  }
  return true;
}

#if defined(__x86_64__)
FlushSubnormals::FlushSubnormals() : saved_(_mm_getcsr()) {
  constexpr unsigned kFlushToZero = 0x8000;
  constexpr unsigned kSubnormalsAreZero = 0x0040;
  _mm_setcsr(saved_ | kFlushToZero | kSubnormalsAreZero);
}
FlushSubnormals::~FlushSubnormals() {
  _mm_setcsr(saved_);
}
#else
FlushSubnormals::FlushSubnormals() = default;
FlushSubnormals::~FlushSubnormals() = default;
#endif

}  // namespace trainyard::runtime
