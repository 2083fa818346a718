// The distinct ids of a batch, in the order in which rows travel, so that what belongs to some of
// the partitions lies together; and the ways between rows by id and rows by occurrence.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/rows/row_id.h"

namespace trainyard::runtime::rows {

// Of one table. Not thread-safe; keeps its memory from batch to batch.
class RowSet {
 public:
  explicit RowSet(std::uint64_t salt) : salt_(salt) {}

  // Occurrences, in the order of the batch: fewer than 2^31. `counts`: how often each of them
  // counts; empty: once.
  void assign(std::span<const std::uint64_t> occurrences,
              std::span<const std::uint32_t> counts = {});

  // Each once, ascending by RowOrder.
  std::span<const std::uint64_t> ids() const { return ids_; }
  // How often each occurs.
  std::span<const std::uint32_t> counts() const { return counts_; }
  // Of each occurrence: where its id is in ids().
  std::span<const std::uint32_t> places() const { return places_; }
  // Those of ids() in these partitions are [first, second).
  std::pair<std::size_t, std::size_t> within(PartitionRange range) const {
    return {begins_[static_cast<std::size_t>(range.first)],
            begins_[static_cast<std::size_t>(range.last)]};
  }

  // by_id[k] = the sum of the rows of its occurrences, in their order; `dim` floats a row.
  void sum(std::span<const float> by_occurrence, std::size_t dim, std::span<float> by_id) const;
  // by_occurrence[i] = the row of its id.
  void spread(std::span<const float> by_id, std::size_t dim, std::span<float> by_occurrence) const;

 private:
  void findDistinct(std::span<const std::uint64_t> occurrences,
                    std::span<const std::uint32_t> counts);
  void sort();

  const std::uint64_t salt_;
  std::vector<std::uint64_t> ids_;
  std::vector<std::uint32_t> counts_;
  std::vector<std::uint32_t> places_;
  std::array<std::size_t, kPartitions + 1> begins_{};
  // Of assign(): where ids are looked up, and their order.
  std::vector<std::uint32_t> cells_;
  std::vector<std::uint32_t> order_;
  std::vector<std::uint64_t> sorted_ids_;
  std::vector<std::uint32_t> sorted_counts_;
};

}  // namespace trainyard::runtime::rows
