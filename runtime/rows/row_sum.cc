#include "runtime/rows/row_sum.h"

#include <algorithm>
#include <queue>
#include <tuple>
#include <utility>

#include "fmt/format.h"
#include "runtime/rows/row_slab.h"

namespace trainyard::runtime::rows {
namespace {

// The next row of a rank. The least comes first: by place, then by rank.
using Next = std::tuple<int, std::uint64_t, std::size_t>;  // partition, id, rank
using Queue = std::priority_queue<Next, std::vector<Next>, std::greater<>>;

void addRow(const RowGradients& from, std::size_t at, std::size_t dim, RowGradients& to) {
  const float* const row = from.sums.data() + at * dim;
  float* const sum = to.sums.data() + to.sums.size() - dim;
  for (std::size_t d = 0; d < dim; ++d) sum[d] += row[d];
  to.counts.back() = addCounts(to.counts.back(), from.counts[at]);
}

void appendRow(const RowGradients& from, std::size_t at, std::size_t dim, RowGradients& to) {
  to.ids.push_back(from.ids[at]);
  to.counts.push_back(from.counts[at]);
  const auto row = from.sums.begin() + static_cast<std::ptrdiff_t>(at * dim);
  to.sums.insert(to.sums.end(), row, row + static_cast<std::ptrdiff_t>(dim));
}

}  // namespace

Status checkIds(std::span<const std::uint64_t> ids, std::string_view table, const RowOrder& order,
                PartitionRange range) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!range.has(order.partition(ids[i]))) {
      return absl::InvalidArgumentError(
          fmt::format("table {}: id {} is of another partition", table, ids[i]));
    }
    if (i > 0 && order.key(ids[i - 1]) >= order.key(ids[i])) {
      return absl::InvalidArgumentError(
          fmt::format("table {}: id {} is out of order", table, ids[i]));
    }
  }
  return absl::OkStatus();
}

Status checkGradients(const RowGradients& gradients, std::string_view table, std::size_t dim,
                      const RowOrder& order, PartitionRange range) {
  const std::size_t rows = gradients.ids.size();
  if (gradients.counts.size() != rows || gradients.sums.size() != rows * dim) {
    return absl::InvalidArgumentError(fmt::format("table {}: {} ids with {} counts and {} numbers",
                                                  table, rows, gradients.counts.size(),
                                                  gradients.sums.size()));
  }
  return checkIds(gradients.ids, table, order, range);
}

RowGradients sumOverRanks(std::span<const RowGradients* const> ranks, std::size_t dim,
                          const RowOrder& order) {
  std::vector<std::size_t> at(ranks.size(), 0);
  Queue queue;
  const auto enqueue = [&](std::size_t rank) {
    if (at[rank] == ranks[rank]->ids.size()) return;
    const auto [partition, id] = order.key(ranks[rank]->ids[at[rank]]);
    queue.emplace(partition, id, rank);
  };
  std::size_t most = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    enqueue(r);
    most += ranks[r]->ids.size();
  }
  RowGradients sum;
  sum.ids.reserve(most);
  sum.counts.reserve(most);
  sum.sums.reserve(most * dim);
  while (!queue.empty()) {
    const auto [partition, id, rank] = queue.top();
    queue.pop();
    if (!sum.ids.empty() && sum.ids.back() == id) {
      addRow(*ranks[rank], at[rank], dim, sum);
    } else {
      appendRow(*ranks[rank], at[rank], dim, sum);
    }
    ++at[rank];
    enqueue(rank);
  }
  return sum;
}

}  // namespace trainyard::runtime::rows
