// Rows from the arrays of a checkpoint, or of another server, into a table.
#pragma once

#include "base/core/status.h"
#include "runtime/checkpoint/snapshot.h"
#include "runtime/rows/row_table.h"

namespace trainyard::runtime::rows {

// From another process: INVALID_ARGUMENT names the table where arrays do not fit it, or ids are not
// of its partitions, in their places and each once.
Status checkRows(const TableRows& rows, const RowTable& table);
// Those of `rows` that are in the table's partitions. Precondition: none of them is there; the
// arrays fit the table.
void loadRows(const TableRows& rows, RowTable& table);

}  // namespace trainyard::runtime::rows
