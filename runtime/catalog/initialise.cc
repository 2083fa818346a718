#include <algorithm>

#include "base/core/check.h"
#include "base/core/normal.h"
#include "base/core/rng.h"
#include "runtime/catalog/catalog.h"

namespace trainyard::runtime {

namespace {

// Four elements share one number of Philox.
void fillTruncatedNormal(double deviation, std::uint64_t key, std::uint64_t begin,
                         std::span<float> out) {
  constexpr std::size_t kLanes = std::size(Philox4{}.v);
  std::size_t lane = begin % kLanes;
  std::uint64_t counter = begin / kLanes;
  for (std::size_t i = 0; i < out.size(); lane = 0) {
    const Philox4 random = philox(key, counter++);
    for (; lane < kLanes && i < out.size(); ++lane)
      out[i++] = float(truncatedQuantile(toUnitFloat(random.v[lane])) * deviation);
  }
}

}  // namespace

void initialise(const Variable& variable, std::uint64_t seed, std::int64_t begin,
                std::span<float> out) {
  TY_CHECK(variable.dtype == DType::kFloat32, "only float32 variables have initial values");
  TY_CHECK(begin >= 0 && begin + std::int64_t(out.size()) <= variable.elements(),
           "a shard asks for elements of its variable only");
  switch (variable.initializer.kind) {
    case Initializer::Kind::kZeros:
      std::fill(out.begin(), out.end(), 0.0f);
      return;
    case Initializer::Kind::kConstant:
      std::fill(out.begin(), out.end(), variable.initializer.value);
      return;
    case Initializer::Kind::kTruncatedNormal:
      return fillTruncatedNormal(variable.initializer.value, mixKey(seed, variable.name),
                                 std::uint64_t(begin), out);
  }
}

}  // namespace trainyard::runtime
