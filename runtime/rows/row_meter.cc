#include "runtime/rows/row_meter.h"

#include <cmath>

#include "base/core/check.h"

namespace trainyard::runtime::rows {

RandomSample::RandomSample(std::uint64_t seed, double every)
    : rng_(seed), log_passed_(std::log1p(-1 / every)) {
  TY_CHECK(every > 1, "a sample leaves something out");
  skip_ = nextSkip();
}

// How many fail before the first success, by inversion of the geometric distribution.
std::size_t RandomSample::nextSkip() {
  return static_cast<std::size_t>(std::log1p(-rng_.unit()) / log_passed_);
}

void RowMeter::pulled(std::span<const std::uint64_t> ids) {
  counts_.pulled += ids.size();
  sample_.take(ids.size(), [&](std::size_t at) { hot_.observe(ids[at]); });
}

void RowMeter::updated(const RowUpdateResult& result) {
  counts_.created += static_cast<std::uint64_t>(result.created);
  counts_.refused += static_cast<std::uint64_t>(result.refused);
}

}  // namespace trainyard::runtime::rows
