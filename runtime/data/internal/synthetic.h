// Pictures without files, for tests and benches of any shape.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "runtime/data/dataset.h"

namespace trainyard::runtime::internal {

struct SyntheticSpec {
  std::array<int, 3> shape{};  // height, width, channels
  int classes = 0;
  std::int64_t first = 0;  // number of sample 0 in the endless sequence of pictures
  std::int64_t samples = 0;
};

// Picture n has label n % classes. A pixel is 5/8 of its class's pattern, blocks of 4x4 pixels that
// survive pooling, and 3/8 noise of its own; both are Philox bytes, so that every machine has the
// same ones. About 2 ns a pixel.
std::unique_ptr<Dataset> makeSyntheticDataset(const SyntheticSpec& spec);

}  // namespace trainyard::runtime::internal
