// Products of matrices.
#pragma once

#include <cstdint>

namespace trainyard::runtime {

// A matrix as it lies in memory, row by row.
struct Matrix {
  const float* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  bool transposed = false;  // the product takes it so

  // Of the matrix as the product takes it.
  std::int64_t height() const { return transposed ? columns : rows; }
  std::int64_t width() const { return transposed ? rows : columns; }
};
inline Matrix transposed(const Matrix& m) {
  return {m.data, m.rows, m.columns, !m.transposed};
}

// What becomes of the numbers that are in the result's memory.
enum class Into { kSet, kAdd };
// out, row by row, is a * b.
void multiply(const Matrix& a, const Matrix& b, Into into, float* out);
// Whether multiply() is oneDNN's, and not OpenBLAS's.
bool oneDnnMultiplies();

}  // namespace trainyard::runtime
