#include "runtime/rows/row_copy.h"

#include <algorithm>
#include <span>
#include <vector>

#include "base/core/check.h"
#include "runtime/checkpoint/checkpoint.h"

namespace trainyard::runtime::rows {

static_assert(kPartitions == kTablePartitions, "files have the partitions of tables");

TableRows copyRows(const RowTable& table, std::size_t number) {
  const auto dim = static_cast<std::size_t>(table.options().dim);
  const auto size = static_cast<std::size_t>(table.size());
  TableRows copy{.table = number,
                 .first = table.range().first,
                 .sizes = {},
                 .ids = {},
                 .steps = {},
                 .counts = {},
                 .weights = {},
                 .slots = std::vector<std::vector<float>>(table.slots())};
  copy.ids.reserve(size);
  copy.weights.reserve(size * dim);
  for (std::vector<float>& slot : copy.slots) slot.reserve(size * dim);
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

void loadRows(const TableRows& rows, RowTable& table) {
  const auto dim = static_cast<std::size_t>(table.options().dim);
  TY_CHECK(rows.slots.size() == table.slots(), "rows have the table's slots");
  std::vector<float> slots(rows.slots.size() * dim);
  std::size_t at = 0;
  for (std::size_t p = 0; p < rows.sizes.size(); ++p) {
    const std::size_t end = at + static_cast<std::size_t>(rows.sizes[p]);
    if (!table.range().has(rows.first + static_cast<int>(p))) {
      at = end;
      continue;
    }
    for (; at < end; ++at) {
      for (std::size_t s = 0; s < rows.slots.size(); ++s)
        std::ranges::copy(std::span(rows.slots[s]).subspan(at * dim, dim),
                          slots.begin() + static_cast<std::ptrdiff_t>(s * dim));
      table.load({.id = rows.ids[at],
                  .step = rows.steps[at],
                  .count = rows.counts[at],
                  .weights = std::span(rows.weights).subspan(at * dim, dim),
                  .slots = slots});
    }
  }
}

}  // namespace trainyard::runtime::rows
