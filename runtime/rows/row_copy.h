// Rows as they lie in a table, to and from the arrays of a checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/core/status.h"
#include "runtime/checkpoint/snapshot.h"
#include "runtime/rows/row_table.h"
#include "runtime/rows/row_undo.h"

namespace trainyard::runtime::rows {

// All that it holds; `number` is the table's among the job's.
TableRows copyRows(const RowTable& table, std::size_t number);
// The same of the version before the update that has filled `undo`, which was the last one.
TableRows copyRowsBefore(const RowTable& table, const RowUndo& undo, std::size_t number);
// From another process: INVALID_ARGUMENT names the table where arrays do not fit it, or ids are not
// of its partitions, in their places and each once.
Status checkRows(const TableRows& rows, const RowTable& table);
// Those of `rows` that are in the table's partitions. Precondition: none of them is there; the
// arrays fit the table.
void loadRows(const TableRows& rows, RowTable& table);

}  // namespace trainyard::runtime::rows
