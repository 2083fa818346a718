// The interaction of features of dlrm: the dot product of each two of a sample's vectors (Naumov
// and others: "Deep Learning Recommendation Model for Personalization and Recommendation Systems",
// 2019, as the authors' code does it without --arch-interaction-itself). Plain single-threaded
// loops; the same input gives the same bits, and NaN passes through.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trainyard::runtime {

// Of each sample: `count` >= 1 vectors of `dim` floats, the first of which stands for its numbers.
struct Interaction {
  std::size_t count = 1;
  std::size_t dim = 1;

  // Floats of one sample.
  std::size_t inputs() const { return count * dim; }
  // The first vector, and a product for each two.
  std::size_t outputs() const { return dim + count * (count - 1) / 2; }
};

// out[sample] = vector 0, then 1 . 0, 2 . 0, 2 . 1, 3 . 0, ...: the lower triangle, without the
// diagonal, row by row. vectors: samples * inputs() floats; out: samples * outputs().
void interact(const Interaction& shape, const float* vectors, std::int64_t samples, float* out);

// The gradients of `vectors`, written whole; `gradient` is that of interact()'s out.
void interactBackward(const Interaction& shape, const float* vectors, const float* gradient,
                      std::int64_t samples, float* vector_gradients);

}  // namespace trainyard::runtime
