#include <algorithm>

#include "base/core/check.h"
#include "base/core/normal.h"
#include "base/core/rng.h"
#include "runtime/catalog/catalog.h"

namespace trainyard::runtime {

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
    case Initializer::Kind::kTruncatedNormal: {
      const std::uint64_t key = mixKey(seed, variable.name);
      const double deviation = variable.initializer.value;
      std::uint64_t element = std::uint64_t(begin);
      for (float& value : out)
        value = float(trainyard::truncatedNormal(key, element++) * deviation);
      return;
    }
  }
}

}  // namespace trainyard::runtime
