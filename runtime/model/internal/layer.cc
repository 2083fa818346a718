#include "runtime/model/internal/layer.h"

#include <utility>

namespace trainyard::runtime {

float* Workspace::beside(const float* used, std::int64_t size) {
  Buffer<float>& other = turns[0].data() == used ? turns[1] : turns[0];
  return other.atLeast(size);
}

GradientMemory Workspace::gradient(std::int64_t size) const {
  const std::size_t bytes = static_cast<std::size_t>(size) * sizeof(float);
  auto* const values = static_cast<float*>(gradients->allocate(bytes, alignof(float)));
  return {values, [memory = gradients, bytes](float* at) {
            memory->deallocate(at, bytes, alignof(float));
          }};
}

void emitBiases(int parameter, const float* gradient, const ImageGrid& grid, const Workspace& work,
                const Emit& emit) {
  GradientMemory biases = work.gradient(grid.channels);
  sumPixels(gradient, grid, biases.get());
  emit(parameter, std::move(biases), grid.channels);
}

}  // namespace trainyard::runtime
