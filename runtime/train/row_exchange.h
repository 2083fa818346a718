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

// Used by the trainer's thread.
class RowExchange {
 public:
  virtual ~RowExchange() = default;
  // Of the samples of the kTrain turn that was given last, at its version. Once for a turn.
  virtual RowValues rows() = 0;
  // After rows(), before finish(): SUMS over the batch's samples, laid out as rows() gave them.
  virtual void pushRows(RowValues gradients) = 0;
  // In a kEvaluate turn: rows at its version. CANCELLED: the turn is void.
  virtual StatusOr<RowValues> readRows(const RowIds& ids) = 0;
};

}  // namespace trainyard::runtime
