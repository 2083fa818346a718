// Tabular samples, column by column.
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
#include "runtime/data/internal/value_array.h"

namespace trainyard::runtime::internal {

// Most ids that a sample may have of one column: batches count them in 32 bits.
inline constexpr std::size_t kMaxIdsOfSample = 65536;

// Of a column of kind Id or Text one id a sample. Of kind Ids those of sample i are
// ids[ends[i - 1] .. ends[i]).
struct IdValues {
  explicit IdValues(ValueStore& store) : ids(store), ends(store) {}
  ValueArray<std::uint64_t> ids;
  ValueArray<std::int64_t> ends;
};

// Of these columns. In memory, or in files of `folder` where one is given: what of them is not in
// use the system may put there. checkRoom() and finishTable() tell when there was no place for a
// value.
struct TableValues {
  TableValues(std::span<const Column> columns, std::string folder);

  std::unique_ptr<ValueStore> store;
  std::vector<IdValues> features;          // by Columns::features
  std::vector<ValueArray<float>> numbers;  // by Columns::numbers
  ValueArray<std::uint8_t> labels;         // 0 or 1: as many as there are samples
  ValueArray<float> weights;               // as many, where Columns::weighted
};

// Refuses one more sample where there are `samples_max`: of the file of `place` it is the `unit`
// (line, record) of this number. Fails where those before have found no room.
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
