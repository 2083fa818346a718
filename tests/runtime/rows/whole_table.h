// All of a table's rows in one go: what is read of it in any other way is to be equal.
#pragma once

#include <cstddef>

#include "runtime/checkpoint/snapshot.h"
#include "runtime/rows/row_table.h"

namespace trainyard::runtime::rows {

inline TableRows copyRows(const RowTable& table, std::size_t number) {
  const auto dim = static_cast<std::size_t>(table.options().dim);
  TableRows copy = emptyRows(number, table.range().first, table.slots());
  for (int partition = table.range().first; partition < table.range().last; ++partition) {
    const std::vector<RowView> rows = table.rows(partition);
    copy.sizes.push_back(static_cast<std::int64_t>(rows.size()));
    for (const RowView& row : rows) {
      copy.ids.push_back(row.id);
      copy.steps.push_back(row.step);
      copy.counts.push_back(row.count);
      copy.weights.insert(copy.weights.end(), row.weights.begin(), row.weights.end());
      for (std::size_t s = 0; s < copy.slots.size(); ++s) {
        const auto slot = row.slots.subspan(s * dim, dim);
        copy.slots[s].insert(copy.slots[s].end(), slot.begin(), slot.end());
      }
    }
  }
  return copy;
}

}  // namespace trainyard::runtime::rows
