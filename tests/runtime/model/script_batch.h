// What the tests of TorchScript models train on.
#pragma once

#include <array>
#include <cstdint>

#include "base/core/rng.h"
#include "runtime/data/dataset.h"

namespace trainyard::runtime {

inline constexpr std::array<int, 3> kShape{3, 4, 1};
inline constexpr int kInputs = 12;
inline constexpr int kClasses = 5;

// Drawn pixels and labels; keys from 100.
inline Batch makeBatch(int size, std::uint64_t seed) {
  Batch batch;
  batch.shape = kShape;
  Rng rng(seed);
  for (int i = 0; i < size * kInputs; ++i) batch.images.push_back(static_cast<float>(rng.unit()));
  for (int n = 0; n < size; ++n) {
    batch.labels.push_back(static_cast<std::int64_t>(rng.below(kClasses)));
    batch.keys.push_back(100 + n);
  }
  return batch;
}

}  // namespace trainyard::runtime
