#include "runtime/tensor/reduce.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "base/core/check.h"
#include "runtime/tensor/internal/half.h"
#include "runtime/tensor/internal/reduce_variants.h"

namespace trainyard::runtime {
namespace {

using internal::Isa;
using internal::runOn;

// What an element is in memory (Stored) and what it is computed as (Value).
template <typename T>
struct Plain {
  using Stored = T;
  using Value = T;
  static TY_ALWAYS_INLINE Value load(Stored s) { return s; }
  static TY_ALWAYS_INLINE Stored store(Value v) { return v; }
};
// Put together as an int, of which as many bits are kept as there were.
template <typename T>
struct Small {
  using Stored = T;
  using Value = int;
  static TY_ALWAYS_INLINE Value load(Stored s) { return s; }
  static TY_ALWAYS_INLINE Stored store(Value v) { return static_cast<Stored>(v); }
};
struct Truth {
  using Stored = std::uint8_t;
  using Value = int;
  static TY_ALWAYS_INLINE Value load(Stored s) { return s != 0; }
  static TY_ALWAYS_INLINE Stored store(Value v) { return v != 0; }
};
struct Half {
  using Stored = std::uint16_t;
  using Value = float;
  static TY_ALWAYS_INLINE Value load(Stored s) { return internal::halfToFloat(s); }
  static TY_ALWAYS_INLINE Stored store(Value v) { return internal::floatToHalf(v); }
};
struct Bfloat {
  using Stored = std::uint16_t;
  using Value = float;
  static TY_ALWAYS_INLINE Value load(Stored s) { return internal::bfloatToFloat(s); }
  static TY_ALWAYS_INLINE Stored store(Value v) { return internal::floatToBfloat(v); }
};

struct Sum {
  template <typename T>
  static TY_ALWAYS_INLINE T of(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    } else {
      return a + b;
    }
  }
};
struct Min {
  template <typename T>
  static TY_ALWAYS_INLINE T of(T a, T b) {
    return (b < a || b != b) ? b : a;  // a NaN is less than nothing, and stays
  }
};
struct Max {
  template <typename T>
  static TY_ALWAYS_INLINE T of(T a, T b) {
    return (b > a || b != b) ? b : a;
  }
};

struct Product {
  template <typename T>
  static TY_ALWAYS_INLINE T of(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
    } else {
      return a * b;
    }
  }
};
struct BitAnd {
  template <typename T>
  static TY_ALWAYS_INLINE T of(T a, T b) {
    return a & b;
  }
};
struct BitOr {
  template <typename T>
  static TY_ALWAYS_INLINE T of(T a, T b) {
    return a | b;
  }
};
struct BitXor {
  template <typename T>
  static TY_ALWAYS_INLINE T of(T a, T b) {
    return a ^ b;
  }
};

template <typename Format>
TY_ALWAYS_INLINE typename Format::Value loadAt(const std::byte* x, std::int64_t i) {
  typename Format::Stored stored;
  std::memcpy(&stored, x + i * static_cast<std::int64_t>(sizeof(stored)), sizeof(stored));
  return Format::load(stored);
}
template <typename Format>
TY_ALWAYS_INLINE void storeAt(std::byte* x, std::int64_t i, typename Format::Value value) {
  const typename Format::Stored stored = Format::store(value);
  std::memcpy(x + i * static_cast<std::int64_t>(sizeof(stored)), &stored, sizeof(stored));
}

template <typename Format, typename Op>
struct ReduceLoop {
  static TY_ALWAYS_INLINE void run(std::byte* acc, const std::byte* x, std::int64_t n) {
    std::byte* __restrict to = acc;
    const std::byte* __restrict from = x;
    for (std::int64_t i = 0; i < n; ++i) {
      storeAt<Format>(to, i, Op::of(loadAt<Format>(to, i), loadAt<Format>(from, i)));
    }
  }
};

// Sums of `kCount` float32 arrays into the same arrays: loads and stores of one element only ever
// meet at the same index, which the compiler cannot know.
template <int kCount>
struct SumEverywhereLoop {
  static TY_ALWAYS_INLINE void run(std::byte* const* arrays, std::int64_t n) {
    std::byte* x[kCount];
    for (int k = 0; k < kCount; ++k) x[k] = arrays[k];
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) {
      float sum = loadAt<Plain<float>>(x[0], i);
      for (int k = 1; k < kCount; ++k) sum = sum + loadAt<Plain<float>>(x[k], i);
      for (int k = 0; k < kCount; ++k) storeAt<Plain<float>>(x[k], i, sum);
    }
  }
};

template <typename Format>
struct DivideLoop {
  static TY_ALWAYS_INLINE void run(std::byte* x, std::int64_t n, typename Format::Value divisor) {
    for (std::int64_t i = 0; i < n; ++i) storeAt<Format>(x, i, loadAt<Format>(x, i) / divisor);
  }
};

template <typename Format>
struct ScaleLoop {
  static TY_ALWAYS_INLINE void run(std::byte* x, std::int64_t n, typename Format::Value factor) {
    for (std::int64_t i = 0; i < n; ++i) storeAt<Format>(x, i, loadAt<Format>(x, i) * factor);
  }
};

template <typename Format>
struct NarrowLoop {
  static TY_ALWAYS_INLINE void run(std::byte* narrow, const std::byte* wide, std::int64_t n) {
    std::byte* __restrict to = narrow;
    const std::byte* __restrict from = wide;
    for (std::int64_t i = 0; i < n; ++i) storeAt<Format>(to, i, loadAt<Plain<float>>(from, i));
  }
};

template <typename Format>
struct WidenLoop {
  static TY_ALWAYS_INLINE void run(std::byte* wide, const std::byte* narrow, std::int64_t n) {
    std::byte* __restrict to = wide;
    const std::byte* __restrict from = narrow;
    for (std::int64_t i = 0; i < n; ++i) storeAt<Plain<float>>(to, i, loadAt<Format>(from, i));
  }
};

template <typename Format>
struct AddWidenedLoop {
  static TY_ALWAYS_INLINE void run(float* acc, const std::byte* x, std::int64_t n) {
    float* __restrict to = acc;
    const std::byte* __restrict from = x;
    for (std::int64_t i = 0; i < n; ++i) to[i] += loadAt<Format>(from, i);
  }
};

template <typename Format>
struct RoundLoop {
  static TY_ALWAYS_INLINE void run(float* x, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) x[i] = Format::load(Format::store(x[i]));
  }
};

// Calls `use` with a value of the format's type.
template <typename Use>
void withFormat(ElementType type, const Use& use) {
  switch (type) {
    case ElementType::kFloat32:
      return use(Plain<float>());
    case ElementType::kFloat16:
      return use(Half());
    case ElementType::kBFloat16:
      return use(Bfloat());
    case ElementType::kFloat64:
      return use(Plain<double>());
    case ElementType::kInt32:
      return use(Plain<std::int32_t>());
    case ElementType::kInt64:
      return use(Plain<std::int64_t>());
    case ElementType::kUint8:
      return use(Small<std::uint8_t>());
    case ElementType::kInt8:
      return use(Small<std::int8_t>());
    case ElementType::kBool:
      return use(Truth());
  }
}

// The same for the two types that a float32 is rounded to.
template <typename Use>
void with16Bits(ElementType type, const Use& use) {
  TY_CHECK(type == ElementType::kFloat16 || type == ElementType::kBFloat16, "a 16-bit float");
  if (type == ElementType::kFloat16) return use(Half());
  use(Bfloat());
}

// Calls `use` with a value of the operation's type; those of bits only where `kBits`.
template <bool kBits, typename Use>
void withOp(ReduceOp op, const Use& use) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return use(Sum());
    case ReduceOp::kMin:
      return use(Min());
    case ReduceOp::kMax:
      return use(Max());
    case ReduceOp::kProduct:
      return use(Product());
    case ReduceOp::kBitAnd:
      if constexpr (kBits) return use(BitAnd());
      break;
    case ReduceOp::kBitOr:
      if constexpr (kBits) return use(BitOr());
      break;
    case ReduceOp::kBitXor:
      if constexpr (kBits) return use(BitXor());
      break;
  }
  TY_CHECK(false, "an operation that is defined for the type");
}

bool sumEverywhere(Isa isa, std::span<std::byte* const> arrays, std::int64_t n) {
  switch (arrays.size()) {
    case 2:
      runOn<SumEverywhereLoop<2>>(isa, arrays.data(), n);
      return true;
    case 3:
      runOn<SumEverywhereLoop<3>>(isa, arrays.data(), n);
      return true;
    case 4:
      runOn<SumEverywhereLoop<4>>(isa, arrays.data(), n);
      return true;
    default:
      return false;
  }
}

}  // namespace

namespace internal {

void reduceInto(Isa isa, ElementType type, ReduceOp op, std::byte* acc, const std::byte* x,
                std::int64_t n) {
  withFormat(type, [&](auto format) {
    using Format = decltype(format);
    withOp<std::is_integral_v<typename Format::Value>>(
        op, [&](auto o) { runOn<ReduceLoop<Format, decltype(o)>>(isa, acc, x, n); });
  });
}

void reduceAcross(Isa isa, ElementType type, ReduceOp op, std::span<const std::byte* const> sources,
                  std::span<std::byte* const> targets, std::int64_t n) {
  TY_CHECK(!sources.empty() && sources.size() <= kMaxSources, "1 to kMaxSources sources");
  const bool in_place = std::equal(sources.begin(), sources.end(), targets.begin(), targets.end());
  const bool sums = op == ReduceOp::kSum || op == ReduceOp::kAverage;
  if (type == ElementType::kFloat32 && sums && in_place && sumEverywhere(isa, targets, n)) {
    return;
  }
  // A block stays in the first-level cache while the sources are added and the targets written.
  constexpr std::size_t kBlockBytes = 8192;
  alignas(64) std::array<std::byte, kBlockBytes> block;
  const std::size_t size = sizeOf(type);
  const auto total = static_cast<std::size_t>(n) * size;
  for (std::size_t at = 0; at < total; at += kBlockBytes) {
    const std::size_t bytes = std::min(kBlockBytes, total - at);
    std::memcpy(block.data(), sources[0] + at, bytes);
    for (const std::byte* source : sources.subspan(1)) {
      reduceInto(isa, type, op, block.data(), source + at, static_cast<std::int64_t>(bytes / size));
    }
    for (std::byte* target : targets) std::memcpy(target + at, block.data(), bytes);
  }
}

void divideElements(Isa isa, ElementType type, std::byte* x, std::int64_t n, std::int64_t divisor) {
  withFormat(type, [&](auto format) {
    using Format = decltype(format);
    runOn<DivideLoop<Format>>(isa, x, n, static_cast<typename Format::Value>(divisor));
  });
}

void scaleElements(Isa isa, ElementType type, std::byte* x, std::int64_t n, double factor) {
  TY_CHECK(isFloat(type), "floats");
  withFormat(type, [&](auto format) {
    using Format = decltype(format);
    runOn<ScaleLoop<Format>>(isa, x, n, static_cast<typename Format::Value>(factor));
  });
}

void narrowFloats(Isa isa, ElementType type, std::byte* narrow, const std::byte* wide,
                  std::int64_t n) {
  with16Bits(type, [&](auto format) { runOn<NarrowLoop<decltype(format)>>(isa, narrow, wide, n); });
}

void widenFloats(Isa isa, ElementType type, std::byte* wide, const std::byte* narrow,
                 std::int64_t n) {
  with16Bits(type, [&](auto format) { runOn<WidenLoop<decltype(format)>>(isa, wide, narrow, n); });
}

void addWidened(Isa isa, ElementType type, float* acc, const std::byte* x, std::int64_t n) {
  with16Bits(type, [&](auto format) { runOn<AddWidenedLoop<decltype(format)>>(isa, acc, x, n); });
}

void roundFloats(Isa isa, ElementType type, std::span<float> x) {
  with16Bits(type, [&](auto format) {
    runOn<RoundLoop<decltype(format)>>(isa, x.data(), static_cast<std::int64_t>(x.size()));
  });
}

}  // namespace internal

std::string_view nameOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kProduct:
      return "product";
    case ReduceOp::kBitAnd:
      return "bitwise and";
    case ReduceOp::kBitOr:
      return "bitwise or";
    case ReduceOp::kBitXor:
      return "bitwise xor";
    case ReduceOp::kAverage:
      return "average";
  }
  TY_CHECK(false, "the operations above are all there are");
}

bool isDefined(ElementType type, ReduceOp op) {
  const bool bits = op == ReduceOp::kBitAnd || op == ReduceOp::kBitOr || op == ReduceOp::kBitXor;
  return !bits || !isFloat(type);
}

void reduceInto(ElementType type, ReduceOp op, std::byte* acc, const std::byte* x, std::int64_t n) {
  internal::reduceInto(internal::bestIsa(), type, op, acc, x, n);
}

void reduceAcross(ElementType type, ReduceOp op, std::span<const std::byte* const> sources,
                  std::span<std::byte* const> targets, std::int64_t n) {
  internal::reduceAcross(internal::bestIsa(), type, op, sources, targets, n);
}

void divideElements(ElementType type, std::byte* x, std::int64_t n, std::int64_t divisor) {
  internal::divideElements(internal::bestIsa(), type, x, n, divisor);
}

void scaleElements(ElementType type, std::byte* x, std::int64_t n, double factor) {
  internal::scaleElements(internal::bestIsa(), type, x, n, factor);
}

void narrowFloats(ElementType type, std::byte* narrow, const std::byte* wide, std::int64_t n) {
  internal::narrowFloats(internal::bestIsa(), type, narrow, wide, n);
}

void widenFloats(ElementType type, std::byte* wide, const std::byte* narrow, std::int64_t n) {
  internal::widenFloats(internal::bestIsa(), type, wide, narrow, n);
}

void addWidened(ElementType type, float* acc, const std::byte* x, std::int64_t n) {
  internal::addWidened(internal::bestIsa(), type, acc, x, n);
}

void roundFloats(ElementType type, std::span<float> x) {
  internal::roundFloats(internal::bestIsa(), type, x);
}

}  // namespace trainyard::runtime
