#include "runtime/rows/space_saving.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/core/check.h"
#include "runtime/rows/row_id.h"

namespace trainyard::runtime::rows {
namespace {

constexpr std::uint16_t kFree = UINT16_MAX;

}  // namespace

SpaceSaving::SpaceSaving(std::size_t counters) : most_(counters) {
  TY_CHECK(1 <= counters && counters <= (std::size_t{1} << 15), "counters have 16-bit places");
  counters_.reserve(counters);
  cells_.assign(std::bit_ceil(2 * counters), kFree);
}

// Where its counter is noted, or would be.
std::size_t SpaceSaving::cellOf(std::uint64_t id) const {
  const std::size_t mask = cells_.size() - 1;
  std::size_t cell = mix64(id) & mask;
  while (cells_[cell] != kFree && counters_[cells_[cell]].id != id) cell = (cell + 1) & mask;
  return cell;
}

// What was noted behind it because it was there moves up, so that a search may end at a free cell.
void SpaceSaving::erase(std::size_t cell) {
  const std::size_t mask = cells_.size() - 1;
  std::size_t hole = cell;
  for (std::size_t next = (hole + 1) & mask; cells_[next] != kFree; next = (next + 1) & mask) {
    const std::size_t wished = mix64(counters_[cells_[next]].id) & mask;
    if (((next - wished) & mask) < ((next - hole) & mask)) continue;
    cells_[hole] = cells_[next];
    hole = next;
  }
  cells_[hole] = kFree;
}

// It trades places with the first that counts as much, which keeps the order.
void SpaceSaving::raise(std::size_t at) {
  const std::uint64_t count = counters_[at].count;
  const auto first = std::ranges::lower_bound(counters_.begin(),
                                              counters_.begin() + static_cast<std::ptrdiff_t>(at),
                                              count, std::greater<>(), &Counter::count);
  const auto to = static_cast<std::size_t>(first - counters_.begin());
  if (to != at) {
    std::swap(cells_[cellOf(counters_[at].id)], cells_[cellOf(counters_[to].id)]);
    std::swap(counters_[at], counters_[to]);
  }
  ++counters_[to].count;
}

void SpaceSaving::observe(std::uint64_t id) {
  ++observations_;
  std::size_t cell = cellOf(id);
  if (cells_[cell] != kFree) return raise(cells_[cell]);
  if (counters_.size() < most_) {
    counters_.push_back({id, 0, 0});
  } else {
    Counter& least = counters_.back();
    erase(cellOf(least.id));
    least = {id, least.count, least.count};
    cell = cellOf(id);
  }
  cells_[cell] = static_cast<std::uint16_t>(counters_.size() - 1);
  raise(counters_.size() - 1);
}

void FrequentIds::add(const SpaceSaving& part) {
  observations_ += part.observations();
  counters_.insert(counters_.end(), part.counters().begin(), part.counters().end());
  if (counters_.size() <= most_) return;
  std::ranges::nth_element(counters_, counters_.begin() + static_cast<std::ptrdiff_t>(most_),
                           std::greater<>(), &SpaceSaving::Counter::count);
  counters_.resize(most_);
}

double FrequentIds::share() const {
  if (observations_ == 0) return 0;
  std::uint64_t sure = 0;
  for (const SpaceSaving::Counter& counter : counters_) sure += counter.count - counter.error;
  return static_cast<double>(sure) / static_cast<double>(observations_);
}

}  // namespace trainyard::runtime::rows
