// 16-bit floats and float32, one number at a time, without branches so that loops vectorise.
#pragma once

#include <bit>
#include <cstdint>

#include "runtime/tensor/internal/isa.h"

namespace trainyard::runtime::internal {

// The float16 conversions scale by powers of two so that the processor's own rounding does the
// work (the method of M. Dukhan's FP16 library). They hold also where subnormal floats count as
// zero: no step of a number that float16 can tell from zero is subnormal in float32.
TY_ALWAYS_INLINE float halfToFloat(std::uint16_t half) {
  const std::uint32_t w = std::uint32_t{half} << 16;
  const std::uint32_t sign = w & 0x80000000u;
  const std::uint32_t magnitude = w + w;
  const float normal = std::bit_cast<float>((magnitude >> 4) + (0xE0u << 23)) * 0x1.0p-112f;
  const float subnormal = std::bit_cast<float>((magnitude >> 17) | (126u << 23)) - 0.5f;
  const std::uint32_t bits = magnitude < (1u << 27) ? std::bit_cast<std::uint32_t>(subnormal)
                                                    : std::bit_cast<std::uint32_t>(normal);
  return std::bit_cast<float>(sign | bits);
}

TY_ALWAYS_INLINE std::uint16_t floatToHalf(float value) {
  const std::uint32_t w = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = w + w;
  const float absolute = std::bit_cast<float>(w & 0x7FFFFFFFu);
  const float scaled = (absolute * 0x1.0p+112f) * 0x1.0p-110f;
  const std::uint32_t exponent = magnitude & 0xFF000000u;
  const std::uint32_t bias = exponent < 0x71000000u ? 0x71000000u : exponent;
  const std::uint32_t bits =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>((bias >> 1) + 0x07800000u) + scaled);
  const std::uint32_t number = ((bits >> 13) & 0x7C00u) + (bits & 0x0FFFu);
  const std::uint32_t result = magnitude > 0xFF000000u ? 0x7E00u : number;
  return static_cast<std::uint16_t>(((w & 0x80000000u) >> 16) | result);
}

TY_ALWAYS_INLINE float bfloatToFloat(std::uint16_t half) {
  return std::bit_cast<float>(std::uint32_t{half} << 16);
}

TY_ALWAYS_INLINE std::uint16_t floatToBfloat(float value) {
  const std::uint32_t w = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (w + 0x7FFFu + ((w >> 16) & 1u)) >> 16;
  const std::uint32_t quiet = (w >> 16) | 0x0040u;
  return static_cast<std::uint16_t>((w & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded);
}

}  // namespace trainyard::runtime::internal
