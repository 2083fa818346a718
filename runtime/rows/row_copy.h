// Rows as they lie in a table, to and from the arrays of a checkpoint.
#pragma once

#include <cstddef>

#include "runtime/checkpoint/snapshot.h"
#include "runtime/rows/row_table.h"

namespace trainyard::runtime::rows {

// All that it holds; `number` is the table's among the job's.
TableRows copyRows(const RowTable& table, std::size_t number);
// Those of `rows` that are in the table's partitions. Precondition: none of them is there; the
// arrays fit the table.
void loadRows(const TableRows& rows, RowTable& table);

}  // namespace trainyard::runtime::rows
