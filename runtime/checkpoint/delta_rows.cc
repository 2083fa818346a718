#include "runtime/checkpoint/delta_rows.h"

#include <cstddef>
#include <span>
#include <unordered_set>

namespace trainyard::runtime {
namespace {

// Rows of one partition.
struct Rows {
  const TableRows* of = nullptr;
  std::size_t at = 0, end = 0;
  bool any() const { return at < end; }
  std::uint64_t id() const { return of->ids[at]; }
};

Rows partitionOf(const TableRows& rows, int partition) {
  const int index = partition - rows.first;
  if (index < 0 || index >= static_cast<int>(rows.sizes.size())) return {};
  std::size_t at = 0;
  for (int p = 0; p < index; ++p)
    at += static_cast<std::size_t>(rows.sizes[static_cast<std::size_t>(p)]);
  const auto size = static_cast<std::size_t>(rows.sizes[static_cast<std::size_t>(index)]);
  return {&rows, at, at + size};
}

}  // namespace

void appendRow(const TableRows& from, std::size_t at, TableRows& to) {
  const std::size_t dim = from.weights.size() / from.ids.size();
  const auto copy = [&](const std::vector<float>& source, std::vector<float>& target) {
    const auto row = std::span(source).subspan(at * dim, dim);
    target.insert(target.end(), row.begin(), row.end());
  };
  to.ids.push_back(from.ids[at]);
  to.steps.push_back(from.steps[at]);
  to.counts.push_back(from.counts[at]);
  copy(from.weights, to.weights);
  for (std::size_t s = 0; s < from.slots.size(); ++s) copy(from.slots[s], to.slots[s]);
}

TableRows mergeRows(const std::vector<TableRows>& base, const TableRows& delta) {
  TableRows merged = emptyRows(delta.table, delta.first, delta.slots.size());
  const std::unordered_set<std::uint64_t> gone(delta.gone.begin(), delta.gone.end());
  for (std::size_t p = 0; p < delta.sizes.size(); ++p) {
    const int partition = delta.first + static_cast<int>(p);
    const std::size_t before = merged.ids.size();
    Rows changed = partitionOf(delta, partition), was;
    for (const TableRows& piece : base) {
      if (const Rows found = partitionOf(piece, partition); found.any()) was = found;
    }
    while (changed.any() || was.any()) {
      if (!was.any() || (changed.any() && changed.id() <= was.id())) {
        if (was.any() && changed.id() == was.id()) ++was.at;
        appendRow(*changed.of, changed.at, merged);
        ++changed.at;
      } else {
        if (!gone.contains(was.id())) appendRow(*was.of, was.at, merged);
        ++was.at;
      }
    }
    merged.sizes.push_back(static_cast<std::int64_t>(merged.ids.size() - before));
  }
  return merged;
}

}  // namespace trainyard::runtime
