// The variables of a step of whose gradients each rank has few rows, as of an embedding: ranks give
// each other those rows (collective/sparse.h) instead of reducing the whole matrix. What comes out
// is the whole matrix all the same, so that whoever takes the step need not know.
//
// It is right for any number of rows, but where all ranks together bring more than about twice as
// many as the matrix has, to reduce it whole would have moved fewer bytes.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/core/status.h"
#include "runtime/collective/collective.h"
#include "runtime/collective/plan.h"
#include "runtime/collective/sparse.h"

namespace trainyard::runtime::ring {

// Of one tensor one thread at a time: first whoever brings rows, then whoever sums them.
class RowExchange {
 public:
  // Takes those of `tensors` that have rows, under their numbers there.
  explicit RowExchange(std::span<const collective::PlannedTensor> tensors);

  // Those tensors, ascending: the order in which they are summed on every rank.
  const std::vector<std::size_t>& tensors() const { return tensors_; }
  std::size_t bytes() const { return bytes_; }  // of their matrices
  bool has(std::size_t tensor) const { return matrices_.contains(tensor); }

  // What this rank has in a step: rows, strictly ascending, and their elements. None at all is what
  // a rank without samples has.
  void bring(std::size_t tensor, std::span<const std::int64_t> rows, std::span<const float> values);
  // Errors of collective::sumRowsInto().
  Status sum(std::size_t tensor, collective::Collective& group);
  // The sum over all ranks, in the order of ranks; rows that none of them had are zero.
  std::span<float> matrix(std::size_t tensor) { return matrices_.at(tensor).sum; }

 private:
  struct Matrix {
    collective::SparseRows own;
    std::vector<float> sum;
  };
  std::map<std::size_t, Matrix> matrices_;
  std::vector<std::size_t> tensors_;
  std::size_t bytes_ = 0;
};

}  // namespace trainyard::runtime::ring
