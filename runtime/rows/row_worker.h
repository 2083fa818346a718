// A worker's side of the tables: what it asks each part for in a step, and when all of a version's
// rows are here. No sockets, no clock, no threads.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/rows/row_part.h"
#include "runtime/rows/row_set.h"

namespace trainyard::runtime::rows {

// A table as a worker knows it.
struct WorkerTable {
  std::string name;
  std::size_t dim = 1;
};

// The job's partitions, cut into so many parts as evenly as it goes; the same cut for all, whatever
// the number of servers. Precondition: 1 <= parts <= kPartitions.
std::vector<PartitionRange> cutIntoParts(int parts);

class RowWorker {
 public:
  RowWorker(std::vector<WorkerTable> tables, std::vector<PartitionRange> parts);

  // A new epoch: what was asked for is forgotten, and answers to it are ignored. What was brought
  // last is kept, for a step that goes on.
  void enter(std::int64_t epoch, int rank);
  // From now on rows of `version` of these occurrences, by table, are waited for, of all parts.
  void want(std::int64_t version, std::span<const std::vector<std::uint64_t>> occurrences);
  // Gradients of step `step`, by table and occurrence of what is here (sums over samples). To be
  // asked for next: rows of the next version. Precondition: complete(), with rows of `step`.
  void bring(std::int64_t step, std::span<const std::vector<float>> gradients);
  // The same of any ids, by table; `counts` as of RowSet::assign().
  void bring(std::int64_t step, std::span<const std::vector<std::uint64_t>> ids,
             std::span<const std::vector<std::uint32_t>> counts,
             std::span<const std::vector<float>> gradients);
  // What to ask a part for, as often as it takes; with what was brought last, or without. All parts
  // are asked, also those for which there is nothing.
  RowRequest request(std::size_t part, bool with_gradients) const;

  // False: it is not what is waited for.
  bool onAnswer(std::size_t part, const RowAnswer& answer);
  // All rows that were asked for are here.
  bool complete() const { return missing_ == 0; }
  std::int64_t epoch() const { return epoch_; }
  std::int64_t version() const { return version_; }
  // By occurrence, as they were asked for. Precondition: complete().
  std::vector<float> rows(std::size_t table) const;
  // Rows that a part is asked for, of a table.
  std::size_t wantedOf(std::size_t part, std::size_t table) const;

 private:
  struct Table {
    WorkerTable table;
    RowSet set;
    std::vector<float> rows;  // by id
    RowSet brought;           // of ids that were given with their gradients
  };
  void beginBringing(std::int64_t step);
  void bringTable(std::size_t t, const RowSet& set, std::span<const float> gradients);

  const std::vector<PartitionRange> parts_;
  std::vector<Table> tables_;
  std::int64_t epoch_ = -1;
  int rank_ = 0;
  std::int64_t version_ = -1;  // wanted
  std::vector<bool> here_;     // by part
  std::size_t missing_ = 0;
  std::int64_t brought_step_ = -1;
  std::vector<std::vector<RowGradients>> brought_;  // by part, table
  std::vector<float> sums_;                         // of bringTable()
};

}  // namespace trainyard::runtime::rows
