#include "runtime/ring/row_exchange.h"

#include "base/core/check.h"

namespace trainyard::runtime::ring {

RowExchange::RowExchange(std::span<const collective::PlannedTensor> tensors) {
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const collective::PlannedTensor& tensor = tensors[t];
    if (tensor.rows == 0) continue;
    TY_CHECK(tensor.elements % tensor.rows == 0, "rows of a matrix are of one length");
    Matrix& matrix = matrices_[t];
    matrix.own.rows = tensor.rows;
    matrix.own.width = tensor.elements / tensor.rows;
    matrix.sum.resize(static_cast<std::size_t>(tensor.elements));
    tensors_.push_back(t);
    bytes_ += matrix.sum.size() * sizeof(float);
  }
}

void RowExchange::bring(std::size_t tensor, std::span<const std::int64_t> rows,
                        std::span<const float> values) {
  collective::SparseRows& own = matrices_.at(tensor).own;
  own.indices.assign(rows.begin(), rows.end());
  own.values.assign(values.begin(), values.end());
}

Status RowExchange::sum(std::size_t tensor, collective::Collective& group) {
  Matrix& matrix = matrices_.at(tensor);
  return collective::sumRowsInto(group, matrix.own, matrix.sum);
}

}  // namespace trainyard::runtime::ring
