// A part of the tables as it was at one version, to be read partition by partition while steps go
// on: what a step changes in a partition that has not been read is kept as it was, once (a
// before-image). So a checkpoint holds up no step for longer than a partition takes to be read, and
// needs memory for what is changed while it is written, not for the tables. No clock, no threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "runtime/checkpoint/snapshot.h"
#include "runtime/rows/row_table.h"
#include "runtime/rows/row_undo.h"

namespace trainyard::runtime::rows {

class RowPart;

// Rows of one partition, in any order.
struct RowBatch {
  std::vector<RowHeader> headers;
  std::vector<float> floats;  // as they lie in a row
};

// None yet, of partitions from range.first on, with room for so many.
TableRows roomForRows(const RowTable& table, std::size_t number, PartitionRange range,
                      std::int64_t rows);
// Ascending by id, as the next partition of `to`.
void appendBatch(const RowBatch& batch, std::size_t dim, TableRows& to);

// Used with its part alone, which nobody else may have meanwhile.
class PartSnapshot {
 public:
  // Of the part as it is. `since`: only what an update at that step or later has changed.
  PartSnapshot(const RowPart& part, std::optional<std::int64_t> since);

  // The part's newest step has changed its store number `store`, and this is what it was before.
  void note(std::size_t store, const RowUndo& undo);
  // Of what is there, and not only of what has changed.
  const std::vector<std::int64_t>& sizes(std::size_t store) const { return stores_[store].sizes; }
  // As they were; what was kept of the partition is given up. Precondition: each once.
  RowBatch read(const RowPart& part, std::size_t store, int partition);
  // Rows that are kept.
  std::size_t kept() const;

 private:
  struct Image {
    std::uint32_t step = 0;
    std::uint32_t count = 0;
    bool created = false;    // it was not there
    std::size_t floats = 0;  // where they begin
  };
  struct Images {
    absl::flat_hash_map<std::uint64_t, Image> rows;  // by id
    std::vector<float> floats;
    bool read = false;
  };
  struct Store {
    std::uint64_t salt = 0;
    int first = 0;  // partition
    std::vector<std::int64_t> sizes;
    std::vector<Images> images;  // by partition

    std::size_t at(int partition) const { return static_cast<std::size_t>(partition - first); }
  };
  bool isMeant(std::uint32_t step) const { return !since_ || stepsAfter(step, *since_) >= 0; }

  const std::optional<std::int64_t> since_;
  std::vector<Store> stores_;
};

}  // namespace trainyard::runtime::rows
