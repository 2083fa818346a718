#include "runtime/rows/row_id.h"

#include <cmath>

#include "base/core/rng.h"

namespace trainyard::runtime::rows {

static_assert(kPartitions == 1 << (64 - 54), "a partition is the upper bits of a hash");

std::uint64_t saltOf(std::string_view table) {
  return mixKey(0, table);
}

std::int64_t partitionCap(std::int64_t max_rows) {
  constexpr std::int64_t kLeast = 16;  // where the share is so small that six deviations are none
  const double share = static_cast<double>(max_rows) / kPartitions;
  return static_cast<std::int64_t>(std::ceil(share + 6 * std::sqrt(share))) + kLeast;
}

}  // namespace trainyard::runtime::rows
