// What a row is before anything has changed it: a function of (seed, table, id, element) alone, so
// that a row that nobody holds can be read by anybody, and nothing depends on who creates it when.
#pragma once

#include <cstdint>
#include <span>

namespace trainyard::runtime::rows {

struct RowInitializer {
  enum class Kind { kZeros, kUniform, kTruncatedNormal };
  Kind kind = Kind::kZeros;
  // Uniform: in [-scale, scale). Truncated normal: the standard deviation of one that is cut off at
  // two of them, as TensorFlow's truncated_normal_initializer.
  float scale = 0;
};

// Fills the row. `key`: of seed and table, see mixKey().
void initialiseRow(const RowInitializer& initializer, std::uint64_t key, std::uint64_t id,
                   std::span<float> row);

}  // namespace trainyard::runtime::rows
