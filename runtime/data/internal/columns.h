// The columns of tabular data, as a job names them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/status.h"
#include "runtime/data/dataset.h"

namespace trainyard::runtime::internal {

enum class ColumnKind { kId, kIds, kNumber, kText, kLabel, kWeight };

// As a job writes it.
std::string_view nameOf(ColumnKind kind);

struct Column {
  std::string name;
  ColumnKind kind = ColumnKind::kId;
  std::int64_t ids = 0;  // how many there are, where the data is made up
};

// dataColumns(): kinds are known, each name is there once, one column is the label, at most one the
// weight, and another one is something to tell the label by. Errors name the field:
// INVALID_ARGUMENT.
StatusOr<std::vector<Column>> readColumns(const v1::DataSpec& spec);

Columns columnsOf(std::span<const Column> columns);

// A column where text is hashed: its length goes before a name.
std::string hashedAs(const Column& column);

// Samples of these columns.
class ColumnsDataset : public Dataset {
 public:
  std::array<int, 3> shape() const final {
    return {1, 1, static_cast<int>(columns_.numbers.size())};
  }
  int classes() const final { return 2; }
  const Columns& columns() const final { return columns_; }

 protected:
  explicit ColumnsDataset(std::span<const Column> columns) : columns_(columnsOf(columns)) {}

 private:
  const Columns columns_;
};

// Sizes of `out` for these samples, its shape and keys; no images; features without ids. Labels,
// numbers and ids are the caller's to fill. Checks that every sample is in [0, size).
void prepareTable(const Columns& columns, std::span<const std::int64_t> samples,
                  std::span<const std::int64_t> keys, std::int64_t size, Batch& out);

// The features alone.
void prepareFeatures(const Columns& columns, std::span<const std::int64_t> samples,
                     std::int64_t size, std::vector<FeatureIds>& out);

}  // namespace trainyard::runtime::internal
