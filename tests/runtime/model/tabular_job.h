// What of a job wide_and_deep and dlrm are made of, batches for them, and the models once more, in
// double precision and as slowly as they can be read.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <ostream>
#include <utility>
#include <vector>

#include "base/core/rng.h"
#include "runtime/data/dataset.h"
#include "runtime/data/table_lookup.h"
#include "tests/runtime/model/reference_network.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::runtime::tabular {

using reference::Values;

inline constexpr std::uint64_t kTabularSeed = 21;

struct TabularJob {
  const char* label = "";
  std::vector<TableLookup> tables;
  int numbers = 0;
  std::vector<int> hidden;
  double dropout = 0;
  std::vector<int> bottom = {};  // of dlrm; empty: wide_and_deep
};
inline void PrintTo(const TabularJob& job, std::ostream* out) {
  *out << job.label;
}

inline v1::ModelSpec specOf(const TabularJob& job) {
  v1::ModelSpec spec;
  spec.set_name(job.bottom.empty() ? "wide_and_deep" : "dlrm");
  spec.set_dropout(job.dropout);
  for (const int width : job.hidden) spec.add_hidden(width);
  for (const int width : job.bottom) spec.add_bottom_hidden(width);
  return spec;
}

inline std::array<int, 3> shapeOf(const TabularJob& job) {
  if (!job.bottom.empty()) {
    std::size_t features = 0;
    for (const TableLookup& table : job.tables) features += table.features.size();
    return {static_cast<int>(features), job.numbers, static_cast<int>(job.tables.front().dim)};
  }
  std::size_t deep = static_cast<std::size_t>(job.numbers);
  for (const TableLookup& table : job.tables)
    if (table.dim > 1) deep += table.dim * table.features.size();
  return {1, job.numbers, static_cast<int>(deep)};
}

inline FeatureIds bagsOf(int samples, std::uint64_t smallest, std::uint64_t largest, Rng& rng) {
  FeatureIds bags;
  for (int s = 0; s < samples; ++s) {
    for (std::uint64_t n = smallest + rng.below(largest - smallest + 1); n > 0; --n)
      bags.ids.push_back(rng.below(100));
    bags.ends.push_back(static_cast<std::int32_t>(bags.ids.size()));
  }
  return bags;
}

// Column 0 has one id a sample, 1 and 2 have bags of any number, also none. Each occurrence has a
// row of its own.
inline Batch tabularBatch(const TabularJob& job, int samples, std::uint64_t seed) {
  Batch batch;
  Rng rng(seed);
  batch.features = {bagsOf(samples, 1, 1, rng), bagsOf(samples, 0, 3, rng),
                    bagsOf(samples, 0, 2, rng)};
  for (int i = 0; i < samples * job.numbers; ++i)
    batch.numbers.push_back(static_cast<float>(2 * rng.unit() - 1));
  for (int s = 0; s < samples; ++s) {
    batch.labels.push_back(static_cast<std::int64_t>(rng.below(2)));
    batch.keys.push_back(static_cast<std::int64_t>(rng.below(1'000'000'000'000)));
  }
  for (const TableLookup& table : job.tables) {
    std::vector<float>& rows = batch.rows.emplace_back();
    for (const std::size_t feature : table.features)
      for (std::size_t i = 0; i < batch.features[feature].ids.size() * table.dim; ++i)
        rows.push_back(static_cast<float>(rng.unit() - 0.5));
  }
  return batch;
}

// Where a reference's loss is taken.
struct Point {
  std::vector<Values> weights;  // by variable
  std::vector<Values> rows;     // as Batch::rows
};

// `ids`: the feature's; `first`: its first occurrence among the table's.
inline Values combinedRow(const TableLookup& table, const FeatureIds& ids, std::size_t first,
                          int sample, const Values& rows) {
  const std::size_t begin = sample == 0 ? 0 : static_cast<std::size_t>(ids.ends[sample - 1]);
  const auto end = static_cast<std::size_t>(ids.ends[sample]);
  Values sum(table.dim);
  for (std::size_t k = first + begin; k < first + end; ++k)
    for (std::size_t d = 0; d < table.dim; ++d) sum[d] += rows[k * table.dim + d];
  const auto n = static_cast<double>(end - begin);
  if (n == 0 || table.combiner == Combiner::kSum) return sum;
  for (double& value : sum) value /= table.combiner == Combiner::kMean ? n : std::sqrt(n);
  return sum;
}

// Of all tables, in order, of each of its features.
inline std::vector<Values> combinedRows(const TabularJob& job, const Batch& batch, const Point& at,
                                        int sample) {
  std::vector<Values> rows;
  for (std::size_t t = 0; t < job.tables.size(); ++t) {
    std::size_t first = 0;
    for (const std::size_t feature : job.tables[t].features) {
      const FeatureIds& ids = batch.features[feature];
      rows.push_back(combinedRow(job.tables[t], ids, first, sample, at.rows[t]));
      first += ids.ids.size();
    }
  }
  return rows;
}

// Layers [first, last) with ReLU, numbered over the whole model.
inline Values hiddenOf(const TabularJob& job, const Batch& batch, const Point& at, int sample,
                       bool training, std::size_t first, std::size_t last, Values values) {
  for (std::size_t layer = first; layer < last; ++layer) {
    values = reference::dense(values, at.weights[2 * layer], at.weights[2 * layer + 1]);
    reference::activate(values, training ? job.dropout : 0, kTabularSeed, static_cast<int>(layer),
                        batch.keys[sample]);
  }
  return values;
}

inline double wideAndDeepLogit(const TabularJob& job, const Batch& batch, const Point& at,
                               int sample, bool training) {
  double logit = 0;
  Values values;
  for (const Values& row : combinedRows(job, batch, at, sample)) {
    if (row.size() == 1) {
      logit += row[0];
    } else {
      values.insert(values.end(), row.begin(), row.end());
    }
  }
  for (int i = 0; i < job.numbers; ++i) {
    values.push_back(batch.numbers[sample * job.numbers + i]);
    logit += values.back() * at.weights.back()[i];
  }
  const std::size_t hidden = job.hidden.size();
  values = hiddenOf(job, batch, at, sample, training, 0, hidden, values);
  return logit + reference::dense(values, at.weights[2 * hidden], at.weights[2 * hidden + 1])[0];
}

inline double dlrmLogit(const TabularJob& job, const Batch& batch, const Point& at, int sample,
                        bool training) {
  const auto* numbers = batch.numbers.data() + sample * job.numbers;
  const std::size_t bottom = job.bottom.size(), hidden = bottom + job.hidden.size();
  std::vector<Values> vectors{hiddenOf(job, batch, at, sample, training, 0, bottom,
                                       Values(numbers, numbers + job.numbers))};
  for (Values& row : combinedRows(job, batch, at, sample)) vectors.push_back(std::move(row));
  Values values = vectors.front();
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      values.push_back(
          std::inner_product(vectors[i].begin(), vectors[i].end(), vectors[j].begin(), 0.0));
    }
  }
  values = hiddenOf(job, batch, at, sample, training, bottom, hidden, values);
  return reference::dense(values, at.weights[2 * hidden], at.weights[2 * hidden + 1])[0];
}

inline double logitOf(const TabularJob& job, const Batch& batch, const Point& at, int sample,
                      bool training) {
  return (job.bottom.empty() ? wideAndDeepLogit : dlrmLogit)(job, batch, at, sample, training);
}

inline reference::Score scoreOf(const TabularJob& job, const Batch& batch, const Point& at,
                                bool training) {
  reference::Score score;
  for (int s = 0; s < batch.size(); ++s) {
    const double logit = logitOf(job, batch, at, s, training);
    const auto label = static_cast<double>(batch.labels[s]);
    score.loss += std::max(logit, 0.0) - logit * label + std::log1p(std::exp(-std::fabs(logit)));
    if ((logit > 0) == (label == 1)) ++score.hits;
  }
  return score;
}

}  // namespace trainyard::runtime::tabular
