#include "runtime/rows/initial_row.h"

#include <algorithm>

#include "base/core/normal.h"
#include "base/core/rng.h"

namespace trainyard::runtime::rows {
namespace {

void fillUniform(float scale, std::uint64_t key, std::uint64_t id, std::span<float> row) {
  for (std::size_t begin = 0; begin < row.size(); begin += 4) {
    const Philox4 random = philox(key, id, begin / 4);
    const std::size_t end = std::min(row.size(), begin + 4);
    for (std::size_t i = begin; i < end; ++i)
      row[i] = (2 * toUnitFloat(random.v[i - begin]) - 1) * scale;
  }
}

void fillTruncatedNormal(float scale, std::uint64_t key, std::uint64_t id, std::span<float> row) {
  for (std::size_t begin = 0; begin < row.size(); begin += 4) {
    const Philox4 random = philox(key, id, begin / 4);
    const std::size_t end = std::min(row.size(), begin + 4);
    for (std::size_t i = begin; i < end; ++i)
      row[i] = static_cast<float>(truncatedQuantile(toUnitFloat(random.v[i - begin])) * scale);
  }
}

}  // namespace

void initialiseRow(const RowInitializer& initializer, std::uint64_t key, std::uint64_t id,
                   std::span<float> row) {
  switch (initializer.kind) {
    case RowInitializer::Kind::kZeros:
      std::ranges::fill(row, 0.0F);
      return;
    case RowInitializer::Kind::kUniform:
      fillUniform(initializer.scale, key, id, row);
      return;
    case RowInitializer::Kind::kTruncatedNormal:
      fillTruncatedNormal(initializer.scale, key, id, row);
      return;
  }
}

}  // namespace trainyard::runtime::rows
