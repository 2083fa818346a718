#include "runtime/model/interaction.h"

#include <algorithm>
#include <array>

namespace trainyard::runtime {
namespace {

// Several sums side by side, because a single one in order would wait for each addition.
float dot(const float* a, const float* b, std::size_t dim) {
  constexpr std::size_t kLanes = 8;
  std::array<float, kLanes> sums{};
  std::size_t i = 0;
  for (; i + kLanes <= dim; i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  for (std::size_t lane = 0; i < dim; ++i, ++lane) sums[lane] += a[i] * b[i];
  float total = 0;
  for (const float sum : sums) total += sum;
  return total;
}

// of_a += slope * b, of_b += slope * a.
void addProductsGradient(float slope, const float* a, const float* b, std::size_t dim, float* of_a,
                         float* of_b) {
  for (std::size_t d = 0; d < dim; ++d) of_a[d] += slope * b[d];
  for (std::size_t d = 0; d < dim; ++d) of_b[d] += slope * a[d];
}

}  // namespace

void interact(const Interaction& shape, const float* vectors, std::int64_t samples, float* out) {
  for (std::int64_t s = 0; s < samples; ++s, vectors += shape.inputs()) {
    out = std::copy_n(vectors, shape.dim, out);
    for (std::size_t i = 1; i < shape.count; ++i)
      for (std::size_t j = 0; j < i; ++j)
        *out++ = dot(vectors + i * shape.dim, vectors + j * shape.dim, shape.dim);
  }
}

void interactBackward(const Interaction& shape, const float* vectors, const float* gradient,
                      std::int64_t samples, float* vector_gradients) {
  for (std::int64_t s = 0; s < samples; ++s) {
    std::fill_n(std::copy_n(gradient, shape.dim, vector_gradients), shape.inputs() - shape.dim,
                0.0f);
    gradient += shape.dim;
    for (std::size_t i = 1; i < shape.count; ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        addProductsGradient(*gradient++, vectors + i * shape.dim, vectors + j * shape.dim,
                            shape.dim, vector_gradients + i * shape.dim,
                            vector_gradients + j * shape.dim);
      }
    }
    vectors += shape.inputs();
    vector_gradients += shape.inputs();
  }
}

}  // namespace trainyard::runtime
