// Rows of a checkpoint and what a later one says of them. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/checkpoint/snapshot.h"

namespace trainyard::runtime {

// Adds row `at` of the one to the other, but for the sizes of its partitions.
void appendRow(const TableRows& from, std::size_t at, TableRows& to);

// All rows of the delta's partitions: those of `base` (pieces of the same table that cover these
// partitions, and may have others) but for what is gone or changed, and the delta's. Nothing is
// gone any more. Precondition: rows of a partition are ascending by id, in all of them.
TableRows mergeRows(const std::vector<TableRows>& base, const TableRows& delta);

}  // namespace trainyard::runtime
