// What autograd gives for the weights of an embedding: rows, in no order and perhaps several times.
// A row that is there several times is added up in the order in which it is, beginning from zero,
// so that both forms have the same bits. Only the .cc files of runtime/torch include it.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace trainyard::runtime {

struct GradientRows {
  std::vector<std::int64_t> rows;  // strictly ascending
  std::vector<float> values;       // one row after the other
};

// The whole matrix, where the gradient is (on a GPU it is added up in any order).
at::Tensor denseGradient(const at::Tensor& sparse);
// In the host's memory. Of a gradient that is not sparse, the rows that are not zero.
GradientRows gradientRows(const at::Tensor& gradient);

}  // namespace trainyard::runtime
