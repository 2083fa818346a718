// Arithmetic on float32 arrays. Every ISA variant gives the bits of the scalar loop: element-wise
// operations only, no re-association, no fused multiply-add, no reciprocal estimates. Thread-safe
// for arrays that do not overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace trainyard::runtime {

// acc[i] += x[i] for i < n; `x` holds n little-endian float32 at any byte address (wire slices
// start at odd offsets) and does not overlap `acc`.
void addFloats(float* acc, const std::byte* x, std::int64_t n);
// x[i] = x[i] / divisor, an IEEE division for every element (not a product with 1 / divisor).
void divideFloats(std::span<float> x, float divisor);
// x[i] = x[i] * factor, one rounding for every element.
void scaleFloats(std::span<float> x, float factor);
// False when any element is NaN or infinite.
bool allFinite(std::span<const float> x);
// Copies `from`, and says whether all of it is finite, reading it once; where it is not, `to` holds
// anything. Both are as long.
bool copyFinite(std::span<const float> from, std::span<float> to);

// While it lives, this thread's SSE and AVX arithmetic takes subnormal operands for zero and gives
// zero for subnormal results, as TensorFlow's compute threads do. Slots that decay towards zero
// would otherwise cost a hundred cycles per element for ever. Does nothing on other processors.
class FlushSubnormals {
 public:
  FlushSubnormals();
  ~FlushSubnormals();
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
  unsigned saved_ = 0;
};

}  // namespace trainyard::runtime
