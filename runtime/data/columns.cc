#include "runtime/data/internal/columns.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include "base/core/check.h"
#include "fmt/format.h"
#include "runtime/catalog/data_columns.h"

namespace trainyard::runtime::internal {
namespace {

constexpr std::array<std::pair<std::string_view, ColumnKind>, 6> kKinds = {{
    {"Id", ColumnKind::kId},
    {"Ids", ColumnKind::kIds},
    {"Number", ColumnKind::kNumber},
    {"Text", ColumnKind::kText},
    {"Label", ColumnKind::kLabel},
    {"Weight", ColumnKind::kWeight},
}};

std::optional<ColumnKind> kindOf(std::string_view name) {
  const auto* const found = std::find_if(kKinds.begin(), kKinds.end(),
                                         [name](const auto& kind) { return kind.first == name; });
  if (found == kKinds.end()) return std::nullopt;
  return found->second;
}

StatusOr<Column> readColumn(const v1::ColumnSpec& spec, const std::string& place) {
  if (spec.name().empty()) return invalidInput(place + ".name", "missing, expected a name");
  const std::optional<ColumnKind> kind = kindOf(spec.kind());
  if (!kind) {
    return invalidInput(
        place + ".kind",
        fmt::format("\"{}\", expected Id, Ids, Number, Text, Label or Weight", spec.kind()));
  }
  return Column{.name = spec.name(), .kind = *kind, .ids = spec.ids()};
}

std::int64_t countOf(ColumnKind kind, std::span<const Column> columns) {
  return std::ranges::count(columns, kind, &Column::kind);
}

Status checkKinds(std::span<const Column> columns) {
  const std::int64_t labels = countOf(ColumnKind::kLabel, columns);
  const std::int64_t weights = countOf(ColumnKind::kWeight, columns);
  std::string problem;
  if (labels != 1) {
    problem = fmt::format("{} columns of kind Label, expected one", labels);
  } else if (weights > 1) {
    problem = fmt::format("{} columns of kind Weight, expected at most one", weights);
  } else if (static_cast<std::int64_t>(columns.size()) == labels + weights) {
    problem = "the label alone, expected columns of kind Id, Ids, Number or Text too";
  }
  return problem.empty() ? absl::OkStatus() : invalidInput("training.data.columns", problem);
}

void checkSamples(std::span<const std::int64_t> samples, std::int64_t size) {
  for (const std::int64_t sample : samples) {
    TY_CHECK(sample >= 0 && sample < size, "the stream gives samples of this set");
  }
}

}  // namespace

std::string_view nameOf(ColumnKind kind) {
  return kKinds[static_cast<std::size_t>(kind)].first;
}

StatusOr<std::vector<Column>> readColumns(const v1::DataSpec& spec) {
  std::vector<Column> columns;
  std::set<std::string> names;
  const std::vector<v1::ColumnSpec> specs = dataColumns(spec);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const std::string place = fmt::format("training.data.columns[{}]", i);
    TY_ASSIGN_OR_RETURN(Column column, readColumn(specs[i], place));
    if (!names.insert(column.name).second) {
      return invalidInput(place + ".name", fmt::format("\"{}\" is there before", column.name));
    }
    columns.push_back(std::move(column));
  }
  TY_RETURN_IF_ERROR(checkKinds(columns));
  return columns;
}

Columns columnsOf(std::span<const Column> columns) {
  Columns out;
  for (const Column& column : columns) {
    if (column.kind == ColumnKind::kNumber) {
      out.numbers.push_back(column.name);
    } else if (column.kind == ColumnKind::kWeight) {
      out.weighted = true;
    } else if (column.kind != ColumnKind::kLabel) {
      out.features.push_back(column.name);
    }
  }
  return out;
}

std::string hashedAs(const Column& column) {
  return fmt::format("{} {}:{} {}\n", nameOf(column.kind), column.name.size(), column.name,
                     column.ids);
}

void prepareTable(const Columns& columns, std::span<const std::int64_t> samples,
                  std::span<const std::int64_t> keys, std::int64_t size, Batch& out) {
  TY_CHECK(samples.size() == keys.size(), "every sample has a key");
  prepareFeatures(columns, samples, size, out.features);
  out.shape = {1, 1, static_cast<int>(columns.numbers.size())};
  out.images.clear();
  out.numbers.resize(samples.size() * columns.numbers.size());
  out.weights.resize(columns.weighted ? samples.size() : 0);
  out.labels.resize(samples.size());
  out.keys.assign(keys.begin(), keys.end());
}

void prepareFeatures(const Columns& columns, std::span<const std::int64_t> samples,
                     std::int64_t size, std::vector<FeatureIds>& out) {
  checkSamples(samples, size);
  out.resize(columns.features.size());
  for (FeatureIds& feature : out) {
    feature.ids.clear();
    feature.ends.resize(samples.size());
  }
}

}  // namespace trainyard::runtime::internal
