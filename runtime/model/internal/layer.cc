#include "runtime/model/internal/layer.h"

#include <utility>

namespace trainyard::runtime {

float* Workspace::beside(const float* used, std::int64_t size) {
  Buffer<float>& other = turns[0].data() == used ? turns[1] : turns[0];
  return other.atLeast(size);
}

void emitBiases(int parameter, const float* gradient, const ImageGrid& grid, const Emit& emit) {
  auto biases = std::make_shared<Buffer<float>>(grid.channels);
  sumPixels(gradient, grid, biases->data());
  emit(parameter, std::move(biases), grid.channels);
}

}  // namespace trainyard::runtime
