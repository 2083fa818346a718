// Ids that a table has no row for yet, because they have not occurred often enough
// (RowTableOptions::admit_after): each has its number of occurrences, exactly.
//
// They are kept as a table without weights, so that files, moves and undoing know no other kind of
// thing; it has the table's partitions, and ids go as that table's would.
#pragma once

#include <cstdint>

#include "runtime/rows/row_sum.h"
#include "runtime/rows/row_table.h"
#include "runtime/rows/row_undo.h"

namespace trainyard::runtime::rows {

// Not thread-safe.
class RowAdmission {
 public:
  RowAdmission(const RowTableOptions& of, PartitionRange range);

  // What of a step's gradients goes into `table`: those of ids that have a row or have occurred
  // often enough by now, which then brings all of their occurrences. The others are counted and
  // left out; where there are as many as rows may be, not counted either.
  void filter(const RowTable& table, std::int64_t step, RowGradients& sum);
  // After the same step: ids that are old are forgotten, as the table's rows would be.
  void evict(std::int64_t version, std::int64_t step);
  // As it was before the step's filter(), where neither evict() nor forgetFormer() came after it.
  void revert();
  // The step before will not be undone any more.
  void forgetFormer() { undo_.clear(); }

  RowTable& counted() { return counted_; }
  const RowTable& counted() const { return counted_; }
  // Of the newest step.
  const RowUndo& undo() const { return undo_; }

 private:
  RowTable counted_;
  std::int64_t admit_after_;
  RowUndo undo_;
};

}  // namespace trainyard::runtime::rows
