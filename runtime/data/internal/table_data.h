// Tabular samples in memory, column by column.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/status.h"
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

// Of these columns, without samples.
TableValues emptyValues(std::span<const Column> columns);

// Refuses one more sample where there are `samples_max`: of the file of `place` it is the `unit`
// (line, record) of this number.
Status checkRoom(const TableValues& values, std::int64_t samples_max, const std::string& place,
                 std::string_view unit, std::int64_t number);

// What files were read into, with no memory left over. INVALID_ARGUMENT where they had no samples:
// names `field`, the first of `paths` and what was expected of it.
StatusOr<std::unique_ptr<Dataset>> finishTable(const std::string& field,
                                               std::span<const std::string> paths,
                                               std::span<const Column> columns, TableValues values,
                                               std::string_view expected);

// Its fingerprint is of columns, kinds and values. Checks that all columns have as many samples.
std::unique_ptr<Dataset> makeTableDataset(const std::vector<Column>& columns, TableValues values);

}  // namespace trainyard::runtime::internal
