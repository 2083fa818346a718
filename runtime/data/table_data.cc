#include "runtime/data/internal/table_data.h"

#include <limits>
#include <numeric>
#include <utility>

#include "base/core/check.h"
#include "base/core/strings.h"
#include "base/security/sha256.h"
#include "fmt/format.h"

namespace trainyard::runtime::internal {
namespace {

template <typename T>
void hashValues(const ValueArray<T>& values, Sha256& hash) {
  hash.update(std::as_bytes(values.values()));
}

// Why there was no room for a value.
Status statusOf(const ValueStore& store) {
  if (store.status.ok()) return absl::OkStatus();
  const std::string where = store.folder.empty()
                                ? "training.data"
                                : fmt::format("training.data.scratch: {}", store.folder);
  return {store.status.code(), fmt::format("{}: {}", where, fromAbsl(store.status.message()))};
}

std::string fingerprintOf(const std::vector<Column>& columns, const TableValues& values) {
  Sha256 hash;
  hash.update(fmt::format("trainyard table 1: {} samples\n", values.labels.size()));
  std::size_t features = 0;
  std::size_t numbers = 0;
  for (const Column& column : columns) {
    hash.update(hashedAs(column));
    if (column.kind == ColumnKind::kLabel) {
      hashValues(values.labels, hash);
    } else if (column.kind == ColumnKind::kWeight) {
      hashValues(values.weights, hash);
    } else if (column.kind == ColumnKind::kNumber) {
      hashValues(values.numbers[numbers++], hash);
    } else {
      hashValues(values.features[features].ends, hash);
      hashValues(values.features[features++].ids, hash);
    }
  }
  return hash.hexDigest();
}

// One id a sample. Samples lie anywhere: the loop has nothing in it that would keep the processor
// from waiting for many of them at once.
void gatherOneEach(std::span<const std::uint64_t> ids, std::span<const std::int64_t> samples,
                   FeatureIds& out) {
  out.ids.resize(samples.size());
  for (std::size_t i = 0; i < samples.size(); ++i)
    out.ids[i] = ids[static_cast<std::size_t>(samples[i])];
  std::iota(out.ends.begin(), out.ends.end(), 1);
}

// The ids of these samples, behind each other; `out` has as many ends.
void gatherIds(const IdValues& values, std::span<const std::int64_t> samples, FeatureIds& out) {
  if (values.ends.empty()) return gatherOneEach(values.ids.values(), samples, out);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::int64_t sample = samples[i];
    const std::int64_t begin = sample == 0 ? 0 : values.ends[sample - 1];
    const auto own = values.ids.values().subspan(begin, values.ends[sample] - begin);
    out.ids.insert(out.ids.end(), own.begin(), own.end());
    out.ends[i] = static_cast<std::int32_t>(out.ids.size());
  }
  TY_CHECK(out.ids.size() <= std::numeric_limits<std::int32_t>::max(),
           "a batch has memory for far fewer ids than 32 bits count");
}

class TableDataset final : public ColumnsDataset {
 public:
  TableDataset(const std::vector<Column>& columns, TableValues values)
      : ColumnsDataset(columns),
        values_(std::move(values)),
        fingerprint_(fingerprintOf(columns, values_)) {
    TY_CHECK(values_.features.size() == this->columns().features.size(), "a column has its ids");
    TY_CHECK(values_.numbers.size() == this->columns().numbers.size(), "a column has its numbers");
    const std::size_t samples = values_.labels.size();
    for (const IdValues& feature : values_.features) {
      const std::size_t count = feature.ends.empty() ? feature.ids.size() : feature.ends.size();
      TY_CHECK(count == samples, "as many ids, or ends of ids, as samples");
    }
    for (const ValueArray<float>& numbers : values_.numbers) {
      TY_CHECK(numbers.size() == samples, "as many numbers as samples");
    }
    TY_CHECK(values_.weights.size() == (this->columns().weighted ? samples : 0),
             "as many weights as samples");
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(values_.labels.size()); }
  const std::string& fingerprint() const override { return fingerprint_; }

  void read(std::span<const std::int64_t> samples, std::span<const std::int64_t> keys,
            Batch& out) const override {
    prepareTable(columns(), samples, keys, size(), out);
    gatherFeatures(samples, out.features);
    const std::size_t width = columns().numbers.size();
    for (std::size_t n = 0; n < width; ++n) {
      const std::span<const float> column = values_.numbers[n].values();
      for (std::size_t i = 0; i < samples.size(); ++i) {
        out.numbers[i * width + n] = column[samples[i]];
      }
    }
    for (std::size_t i = 0; i < samples.size(); ++i) out.labels[i] = values_.labels[samples[i]];
    for (std::size_t i = 0; i < out.weights.size(); ++i)
      out.weights[i] = values_.weights[samples[i]];
  }

  void readFeatures(std::span<const std::int64_t> samples,
                    std::vector<FeatureIds>& out) const override {
    prepareFeatures(columns(), samples, size(), out);
    gatherFeatures(samples, out);
  }

 private:
  void gatherFeatures(std::span<const std::int64_t> samples, std::vector<FeatureIds>& out) const {
    for (std::size_t f = 0; f < values_.features.size(); ++f) {
      gatherIds(values_.features[f], samples, out[f]);
    }
  }

  const TableValues values_;
  const std::string fingerprint_;
};

}  // namespace

TableValues::TableValues(std::span<const Column> columns, std::string folder)
    : store(std::make_unique<ValueStore>(ValueStore{std::move(folder), absl::OkStatus()})),
      labels(*store),
      weights(*store) {
  const Columns names = columnsOf(columns);
  for (std::size_t f = 0; f < names.features.size(); ++f) features.emplace_back(*store);
  for (std::size_t n = 0; n < names.numbers.size(); ++n) numbers.emplace_back(*store);
}

Status checkRoom(const TableValues& values, std::int64_t samples_max, const std::string& place,
                 std::string_view unit, std::int64_t number) {
  TY_RETURN_IF_ERROR(statusOf(*values.store));
  if (static_cast<std::int64_t>(values.labels.size()) < samples_max) return absl::OkStatus();
  return invalidInput(place, fmt::format("{} {}: more samples than {}, the most of all files", unit,
                                         number, samples_max));
}

StatusOr<std::unique_ptr<Dataset>> finishTable(const std::string& field,
                                               std::span<const std::string> paths,
                                               std::span<const Column> columns, TableValues values,
                                               std::string_view expected) {
  if (values.labels.empty()) {
    const std::string others =
        paths.size() == 1 ? "" : fmt::format(" here nor in {} other files", paths.size() - 1);
    return invalidInput(fmt::format("{}: {}", field, paths.front()),
                        fmt::format("no samples{}, expected {}", others, expected));
  }
  values.labels.shrinkToFit();
  values.weights.shrinkToFit();
  for (ValueArray<float>& numbers : values.numbers) numbers.shrinkToFit();
  for (IdValues& feature : values.features) {
    feature.ids.shrinkToFit();
    feature.ends.shrinkToFit();
  }
  TY_RETURN_IF_ERROR(statusOf(*values.store));
  return makeTableDataset({columns.begin(), columns.end()}, std::move(values));
}

std::unique_ptr<Dataset> makeTableDataset(const std::vector<Column>& columns, TableValues values) {
  return std::make_unique<TableDataset>(columns, std::move(values));
}

}  // namespace trainyard::runtime::internal
