// What every kind of dataset does with pixels and batches.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "runtime/data/dataset.h"

namespace trainyard::runtime::internal {

// to[i] = from[i] / 255 as float32: the correctly rounded quotient.
void toUnitFloats(std::span<const std::uint8_t> from, float* to);

// pixels[i] = (5 pattern[i] + 3 pixels[i]) / 8, rounded down.
void blendPixels(std::span<const std::uint8_t> pattern, std::uint8_t* pixels);

// Sizes of `out` for these samples, its shape and keys; images and labels are the caller's to fill.
// Checks that every sample is in [0, size).
void prepareBatch(std::array<int, 3> shape, std::span<const std::int64_t> samples,
                  std::span<const std::int64_t> keys, std::int64_t size, Batch& out);

}  // namespace trainyard::runtime::internal
