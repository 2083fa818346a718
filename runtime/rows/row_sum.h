// What workers bring to a step of one table, and the sum of it over all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/core/status.h"
#include "runtime/rows/row_id.h"

namespace trainyard::runtime::rows {

// Rows of some partitions. All arrays by id.
struct RowGradients {
  std::vector<std::uint64_t> ids;     // ascending by RowOrder, each once
  std::vector<std::uint32_t> counts;  // occurrences
  std::vector<float> sums;            // over samples, `dim` each

  bool empty() const { return ids.empty(); }
};

// Of somebody else: INVALID_ARGUMENT names the table and what is wrong, an id among it that is not
// in its place or not in `range`.
Status checkIds(std::span<const std::uint64_t> ids, std::string_view table, const RowOrder& order,
                PartitionRange range);
Status checkGradients(const RowGradients& gradients, std::string_view table, std::size_t dim,
                      const RowOrder& order, PartitionRange range);

// The union of what the ranks bring; rows that several have are added up in the order of `ranks`,
// so that the bits depend on that order alone. Counts end at 2^32 - 1.
RowGradients sumOverRanks(std::span<const RowGradients* const> ranks, std::size_t dim,
                          const RowOrder& order);

}  // namespace trainyard::runtime::rows
