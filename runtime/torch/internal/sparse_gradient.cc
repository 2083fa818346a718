#include "runtime/torch/internal/sparse_gradient.h"

#include <algorithm>
#include <numeric>
#include <span>

namespace trainyard::runtime {
namespace {

void addRow(const float* from, std::int64_t width, float* into) {
  for (std::int64_t k = 0; k < width; ++k) into[k] += from[k];
}

}  // namespace

at::Tensor denseGradient(const at::Tensor& sparse) {
  if (!sparse.device().is_cpu() || sparse.sparse_dim() != 1) return sparse.to_dense().contiguous();
  at::Tensor sum = at::zeros(sparse.sizes(), sparse.options().layout(at::kStrided));
  const at::Tensor indices = sparse._indices().contiguous();
  const at::Tensor values = sparse._values().contiguous();
  const std::int64_t width = sum.size(0) == 0 ? 0 : sum.numel() / sum.size(0);
  for (std::int64_t i = 0; i < indices.size(1); ++i) {
    addRow(values.data_ptr<float>() + i * width, width,
           sum.data_ptr<float>() + indices.data_ptr<std::int64_t>()[i] * width);
  }
  return sum;
}

GradientRows gradientRows(const at::Tensor& gradient) {
  const at::Tensor sparse = gradient.is_sparse() ? gradient : gradient.to_sparse(1);
  const at::Tensor index_row = sparse._indices()[0].cpu().contiguous();
  const at::Tensor values = sparse._values().cpu().contiguous();
  const std::span<const std::int64_t> indices{index_row.data_ptr<std::int64_t>(),
                                              static_cast<std::size_t>(index_row.numel())};
  const std::int64_t width = sparse.size(1);
  std::vector<std::int64_t> order(indices.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::ranges::stable_sort(order, {}, [&](std::int64_t i) { return indices[i]; });
  GradientRows sum;
  for (const std::int64_t i : order) {
    if (sum.rows.empty() || sum.rows.back() != indices[i]) {
      sum.rows.push_back(indices[i]);
      sum.values.resize(sum.values.size() + width);
    }
    addRow(values.data_ptr<float>() + i * width, width,
           sum.values.data() + sum.values.size() - width);
  }
  return sum;
}

}  // namespace trainyard::runtime
