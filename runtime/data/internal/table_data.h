// Tabular samples in memory, column by column.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/data/dataset.h"
#include "runtime/data/internal/columns.h"

namespace trainyard::runtime::internal {

// Most ids that a sample may have of one column: batches count them in 32 bits.
inline constexpr std::size_t kMaxIdsOfSample = 65536;

// Of a column of kind Id or Text one id a sample. Of kind Ids those of sample i are
// ids[ends[i - 1] .. ends[i]).
struct IdValues {
  std::vector<std::uint64_t> ids;
  std::vector<std::int64_t> ends;
};

struct TableValues {
  std::vector<IdValues> features;           // by Columns::features
  std::vector<std::vector<float>> numbers;  // by Columns::numbers
  std::vector<std::uint8_t> labels;         // 0 or 1: as many as there are samples
};

// Its fingerprint is of columns, kinds and values. Checks that all columns have as many samples.
std::unique_ptr<Dataset> makeTableDataset(const std::vector<Column>& columns, TableValues values);

}  // namespace trainyard::runtime::internal
