#include "runtime/data/table_lookup.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/core/check.h"
#include "base/core/strings.h"
#include "fmt/format.h"

namespace trainyard::runtime {
namespace {

std::optional<Combiner> combinerOf(std::string_view name) {
  if (name.empty()) return TableLookup{}.combiner;
  if (name == "Sum") return Combiner::kSum;
  if (name == "Mean") return Combiner::kMean;
  if (name == "SqrtN") return Combiner::kSqrtN;
  return std::nullopt;
}

// What the sum of n rows is divided by. A quotient, as TensorFlow takes it: times 1 / n would
// differ in the last bit.
float divisorOf(Combiner combiner, std::ptrdiff_t n) {
  const auto rows = static_cast<float>(n);
  if (combiner == Combiner::kMean) return rows;
  return combiner == Combiner::kSqrtN ? std::sqrt(rows) : 1.0f;
}

// Calls visit(sample, first row, rows behind the last) for each sample.
template <typename Visit>
void forEachSample(const FeatureIds& ids, Visit visit) {
  std::ptrdiff_t begin = 0;
  for (std::size_t sample = 0; sample < ids.ends.size(); ++sample) {
    const std::ptrdiff_t end = ids.ends[sample];
    visit(sample, begin, end);
    begin = end;
  }
}

StatusOr<TableLookup> tableLookup(const v1::TableSpec& spec, const std::string& place,
                                  const Columns& columns) {
  TableLookup table;
  table.name = spec.name();
  if (spec.dim() < 1) {
    return invalidInput(place + ".dim", fmt::format("{}, expected 1 or more", spec.dim()));
  }
  table.dim = static_cast<std::size_t>(spec.dim());
  const std::optional<Combiner> combiner = combinerOf(spec.combiner());
  if (!combiner) {
    return invalidInput(place + ".combiner",
                        fmt::format("\"{}\", expected Sum, Mean or SqrtN", spec.combiner()));
  }
  table.combiner = *combiner;
  const auto begin = columns.features.begin();
  const auto end = columns.features.end();
  for (int i = 0; i < spec.features_size(); ++i) {
    const auto found = std::find(begin, end, spec.features(i));
    if (found == end) {
      return invalidInput(fmt::format("{}.features[{}]", place, i),
                          fmt::format("\"{}\" is no column of ids, expected one of: {}",
                                      spec.features(i), join(columns.features, ", ")));
    }
    const auto feature = static_cast<std::size_t>(found - begin);
    if (std::find(table.features.begin(), table.features.end(), feature) != table.features.end()) {
      return invalidInput(fmt::format("{}.features[{}]", place, i),
                          fmt::format("\"{}\" is there before", spec.features(i)));
    }
    table.features.push_back(feature);
  }
  return table;
}

}  // namespace

StatusOr<std::vector<TableLookup>> tableLookups(const v1::Training& training,
                                                const Columns& columns) {
  std::vector<TableLookup> tables;
  for (int i = 0; i < training.tables_size(); ++i) {
    TY_ASSIGN_OR_RETURN(
        TableLookup table,
        tableLookup(training.tables(i), fmt::format("training.tables[{}]", i), columns));
    tables.push_back(std::move(table));
  }
  return tables;
}

std::vector<std::vector<std::uint64_t>> occurrencesOf(std::span<const TableLookup> tables,
                                                      std::span<const FeatureIds> features) {
  std::vector<std::vector<std::uint64_t>> occurrences;
  occurrences.reserve(tables.size());
  for (const TableLookup& table : tables) {
    std::size_t count = 0;
    for (const std::size_t feature : table.features) count += features[feature].ids.size();
    std::vector<std::uint64_t>& ids = occurrences.emplace_back();
    ids.reserve(count);
    for (const std::size_t feature : table.features) {
      ids.insert(ids.end(), features[feature].ids.begin(), features[feature].ids.end());
    }
  }
  return occurrences;
}

void combineRows(Combiner combiner, const FeatureIds& ids, std::span<const float> rows,
                 std::size_t dim, float* combined, std::size_t stride) {
  TY_CHECK(rows.size() == ids.ids.size() * dim, "each id has a row");
  forEachSample(ids, [&](std::size_t sample, std::ptrdiff_t begin, std::ptrdiff_t end) {
    float* const out = combined + sample * stride;
    std::fill_n(out, dim, 0.0f);
    for (std::ptrdiff_t k = begin; k < end; ++k) {
      const float* const row = rows.data() + static_cast<std::size_t>(k) * dim;
      for (std::size_t d = 0; d < dim; ++d) out[d] += row[d];
    }
    if (end - begin < 2) return;
    const float divisor = divisorOf(combiner, end - begin);
    for (std::size_t d = 0; d < dim; ++d) out[d] /= divisor;
  });
}

void spreadGradient(Combiner combiner, const FeatureIds& ids, const float* combined,
                    std::size_t stride, std::size_t dim, std::span<float> rows) {
  TY_CHECK(rows.size() == ids.ids.size() * dim, "each id has a row");
  forEachSample(ids, [&](std::size_t sample, std::ptrdiff_t begin, std::ptrdiff_t end) {
    const float* const in = combined + sample * stride;
    const float divisor = divisorOf(combiner, end - begin);
    for (std::ptrdiff_t k = begin; k < end; ++k) {
      float* const row = rows.data() + static_cast<std::size_t>(k) * dim;
      for (std::size_t d = 0; d < dim; ++d) row[d] = in[d] / divisor;
    }
  });
}

}  // namespace trainyard::runtime
