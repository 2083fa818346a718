#include "runtime/rows/row_set.h"

#include <algorithm>
#include <bit>

#include "base/core/check.h"

namespace trainyard::runtime::rows {
namespace {

constexpr std::uint32_t kEmpty = UINT32_MAX;

}  // namespace

void RowSet::assign(std::span<const std::uint64_t> occurrences,
                    std::span<const std::uint32_t> counts) {
  TY_CHECK(occurrences.size() < (std::size_t{1} << 31), "a batch has fewer ids than 2^31");
  TY_CHECK(counts.empty() || counts.size() == occurrences.size(), "each occurrence counts");
  findDistinct(occurrences, counts);
  sort();
}

// Ids in the order in which they come first, by open addressing over at least twice as many cells.
void RowSet::findDistinct(std::span<const std::uint64_t> occurrences,
                          std::span<const std::uint32_t> counts) {
  ids_.clear();
  counts_.clear();
  places_.resize(occurrences.size());
  cells_.assign(std::bit_ceil(2 * occurrences.size() + 2), kEmpty);
  const std::uint64_t mask = cells_.size() - 1;
  for (std::size_t i = 0; i < occurrences.size(); ++i) {
    const std::uint64_t id = occurrences[i];
    std::uint64_t at = hashOf(id, salt_) & mask;
    while (cells_[at] != kEmpty && ids_[cells_[at]] != id) at = (at + 1) & mask;
    if (cells_[at] == kEmpty) {
      cells_[at] = static_cast<std::uint32_t>(ids_.size());
      ids_.push_back(id);
      counts_.push_back(0);
    }
    places_[i] = cells_[at];
    counts_[cells_[at]] += counts.empty() ? 1 : counts[i];
  }
}

// By counting into partitions, whose few ids are then sorted each.
void RowSet::sort() {
  begins_.fill(0);
  for (const std::uint64_t id : ids_)
    ++begins_[static_cast<std::size_t>(partitionOf(hashOf(id, salt_))) + 1];
  for (std::size_t p = 0; p < kPartitions; ++p) begins_[p + 1] += begins_[p];
  std::array<std::size_t, kPartitions> next;
  std::copy_n(begins_.begin(), kPartitions, next.begin());
  order_.resize(ids_.size());
  for (std::uint32_t k = 0; k < ids_.size(); ++k)
    order_[next[static_cast<std::size_t>(partitionOf(hashOf(ids_[k], salt_)))]++] = k;
  for (std::size_t p = 0; p < kPartitions; ++p) {
    const auto first = order_.begin() + static_cast<std::ptrdiff_t>(begins_[p]);
    const auto last = order_.begin() + static_cast<std::ptrdiff_t>(begins_[p + 1]);
    std::sort(first, last, [this](std::uint32_t a, std::uint32_t b) { return ids_[a] < ids_[b]; });
  }
  sorted_ids_.resize(ids_.size());
  sorted_counts_.resize(ids_.size());
  cells_.resize(ids_.size());  // now: where each has gone
  for (std::uint32_t k = 0; k < order_.size(); ++k) {
    sorted_ids_[k] = ids_[order_[k]];
    sorted_counts_[k] = counts_[order_[k]];
    cells_[order_[k]] = k;
  }
  for (std::uint32_t& place : places_) place = cells_[place];
  ids_.swap(sorted_ids_);
  counts_.swap(sorted_counts_);
}

void RowSet::sum(std::span<const float> by_occurrence, std::size_t dim,
                 std::span<float> by_id) const {
  TY_CHECK(by_occurrence.size() == places_.size() * dim && by_id.size() == ids_.size() * dim,
           "each occurrence has a row, and each id");
  std::ranges::fill(by_id, 0.0F);
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const float* const from = by_occurrence.data() + i * dim;
    float* const to = by_id.data() + places_[i] * dim;
    for (std::size_t d = 0; d < dim; ++d) to[d] += from[d];
  }
}

void RowSet::spread(std::span<const float> by_id, std::size_t dim,
                    std::span<float> by_occurrence) const {
  TY_CHECK(by_occurrence.size() == places_.size() * dim && by_id.size() == ids_.size() * dim,
           "each occurrence has a row, and each id");
  for (std::size_t i = 0; i < places_.size(); ++i)
    std::copy_n(by_id.data() + places_[i] * dim, dim, by_occurrence.data() + i * dim);
}

}  // namespace trainyard::runtime::rows
