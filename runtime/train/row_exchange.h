// What a step loop asks of the servers of the job's tables, beside what a Synchronizer does for
// variables: rows by id come with each turn, gradients by id go back.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/core/status.h"

namespace trainyard::runtime {

// By table, in the order of the job: of each occurrence its id, or its `dim` floats.
using RowIds = std::vector<std::vector<std::uint64_t>>;
using RowValues = std::vector<std::vector<float>>;

// The occurrences of ids in the samples at positions [first, first + count) of the sample stream.
// Called from any thread.
using RowIdsAt = std::function<RowIds(std::int64_t first, int count)>;

// By table: of each occurrence how often it counts; empty: once.
using RowCounts = std::vector<std::vector<std::uint32_t>>;

// Rows that came with a turn, as far as RowIdsAt has known the ids of its samples.
struct TurnRows {
  RowIds ids;
  RowValues values;
};

// Gradients by id: SUMS over the samples of a step. An id may come more than once in a table.
struct RowSums {
  RowIds ids;
  RowCounts counts;
  RowValues values;
};

// Used by the trainer's thread. In a kTrain turn rows(), then readRows() as often as there are
// other rows to read, then one of the two pushRows() before finish().
class RowExchange {
 public:
  virtual ~RowExchange() = default;
  // Of the samples of the kTrain turn that was given last, at its version. Once for a turn.
  virtual TurnRows rows() = 0;
  // SUMS over the batch's samples, laid out as rows() gave them.
  virtual void pushRows(RowValues gradients) = 0;
  // Of any rows.
  virtual void pushRows(const RowSums& sums) = 0;
  // Rows at the turn's version; in the asynchronous modes as they are. CANCELLED: the turn is void.
  virtual StatusOr<RowValues> readRows(const RowIds& ids) = 0;
};

}  // namespace trainyard::runtime
