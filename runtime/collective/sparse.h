// Sums of rows of a matrix of which each rank has few, as the gradient of an embedding.
//
// Ranks give each other their rows (all-gather with as many from each as it has), and each adds
// them up in the order of ranks: the same bits on all. A rank receives the rows of all others,
// whereas a dense all-reduce costs it twice the matrix, however few rows are touched.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/collective/collective.h"
#include "runtime/collective/cost.h"

namespace trainyard::runtime::collective {

struct SparseRows {
  std::int64_t rows = 0;              // of the whole matrix
  std::int64_t width = 0;             // elements of a row
  std::vector<std::int64_t> indices;  // of the rows that are there
  std::vector<float> values;          // their elements, one row after the other
};

// Ascending, each row once: what a row has several times is added in the order in which it is
// there. Pure.
SparseRows coalesce(const SparseRows& given);

// All ranks call it, each with its own rows, in any order and perhaps several times. Ascending
// distinct rows with the sums over all ranks, on all of them. Errors as in collective.h, and
// INVALID_ARGUMENT on this rank alone for indices outside of the matrix, FAILED_PRECONDITION on all
// when the matrices differ, DATA_LOSS for rows that cannot be.
StatusOr<SparseRows> sumRows(Collective& collective, const SparseRows& own);
// The same into `matrix`, of which nothing else is left but zeros: the bits of a sum of whole
// matrices that starts from zero. Faster than writing out what sumRows() gives. INVALID_ARGUMENT on
// this rank alone, too, for a matrix of another size.
Status sumRowsInto(Collective& collective, const SparseRows& own, std::span<float> matrix);

// Of either where rank r has counts[r] distinct rows: three all-gathers, or one when nobody has
// any.
Cost sumRowsCost(std::span<const std::int64_t> counts, std::int64_t width, int rank);

}  // namespace trainyard::runtime::collective
