#include "runtime/rows/row_undo.h"

#include <algorithm>
#include <numeric>

namespace trainyard::runtime::rows {

void RowUndo::add(const Entry& entry, std::span<const float> floats) {
  entries_.push_back(entry);
  floats_.insert(floats_.end(), floats.begin(), floats.end());
  begins_.push_back(floats_.size());
}

void RowUndo::clear() {
  entries_.clear();
  begins_.resize(1);
  floats_.clear();
  by_id_.clear();
}

std::ptrdiff_t RowUndo::find(std::uint64_t id) const {
  const auto of = [this](std::uint32_t entry) { return entries_[entry].id; };
  if (by_id_.size() != entries_.size()) {
    by_id_.resize(entries_.size());
    std::iota(by_id_.begin(), by_id_.end(), 0U);
    std::ranges::sort(by_id_, {}, of);
  }
  const auto at = std::ranges::lower_bound(by_id_, id, {}, of);
  if (at == by_id_.end() || entries_[*at].id != id) return -1;
  return static_cast<std::ptrdiff_t>(*at);
}

}  // namespace trainyard::runtime::rows
