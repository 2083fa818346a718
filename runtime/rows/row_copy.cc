#include "runtime/rows/row_copy.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include "base/core/check.h"
#include "fmt/format.h"
#include "runtime/checkpoint/checkpoint.h"

namespace trainyard::runtime::rows {

static_assert(kPartitions == kTablePartitions, "files have the partitions of tables");

Status checkRows(const TableRows& rows, const RowTable& table) {
  const auto wrong = [&](std::string_view what) {
    return absl::InvalidArgumentError(fmt::format("table {}: {}", table.options().name, what));
  };
  const PartitionRange& range = table.range();
  const auto dim = static_cast<std::size_t>(table.options().dim);
  const std::size_t count = rows.ids.size();
  const std::int64_t told = std::accumulate(rows.sizes.begin(), rows.sizes.end(), std::int64_t{0});
  if (rows.first != range.first ||
      rows.sizes.size() != static_cast<std::size_t>(range.last - range.first) ||
      told != static_cast<std::int64_t>(count))
    return wrong("rows of other partitions");
  const auto fits = [&](const std::vector<float>& array) { return array.size() == count * dim; };
  if (rows.steps.size() != count || rows.counts.size() != count || !fits(rows.weights) ||
      rows.slots.size() != table.slots() || !std::ranges::all_of(rows.slots, fits))
    return wrong("arrays of other lengths");
  if (rows.gone.size() != rows.gone_steps.size()) return wrong("rows that have gone without steps");
  const std::uint64_t salt = saltOf(table.options().name);
  std::size_t at = 0;
  for (std::size_t p = 0; p < rows.sizes.size(); ++p) {
    if (rows.sizes[p] < 0 || static_cast<std::size_t>(rows.sizes[p]) > count - at)
      return wrong("rows of other partitions");
    const std::size_t end = at + static_cast<std::size_t>(rows.sizes[p]);
    for (const std::size_t first = at; at < end; ++at) {
      const bool ascends = at == first || rows.ids[at - 1] < rows.ids[at];
      if (!ascends || partitionOf(hashOf(rows.ids[at], salt)) != range.first + static_cast<int>(p))
        return wrong(fmt::format("id {} is not in its place", rows.ids[at]));
    }
  }
  return absl::OkStatus();
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
    table.expect(rows.first + static_cast<int>(p), rows.sizes[p]);
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
