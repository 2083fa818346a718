#include "runtime/model/internal/tabular_model.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/core/check.h"
#include "fmt/format.h"
#include "runtime/model/internal/failed_pass.h"
#include "runtime/model/threads.h"

namespace trainyard::runtime {
namespace {

std::vector<FeatureLookup> lookupsOf(const std::vector<TableLookup>& tables) {
  std::vector<FeatureLookup> lookups;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    for (const std::size_t feature : tables[t].features) {
      lookups.push_back({.table = t,
                         .feature = feature,
                         .dim = tables[t].dim,
                         .combiner = tables[t].combiner,
                         .first = 0});
    }
  }
  return lookups;
}

// Of one column, `samples` samples.
bool wellFormed(const FeatureIds& ids, std::size_t samples) {
  return ids.ends.size() == samples && ids.ends.front() >= 0 && std::ranges::is_sorted(ids.ends) &&
         static_cast<std::size_t>(ids.ends.back()) == ids.ids.size();
}

// Of the batch's rows, or of their gradients: those of the lookup's feature. [ids, dim]
template <typename Rows>
auto rowsOf(const FeatureLookup& lookup, const Batch& batch, Rows& rows) {
  const std::size_t count = batch.features[lookup.feature].ids.size();
  return std::span(rows[lookup.table]).subspan(lookup.first * lookup.dim, count * lookup.dim);
}

ClickScores clicksOf(const Batch& batch, const float* logits) {
  ClickScores clicks;
  for (std::size_t s = 0; s < batch.labels.size(); ++s) {
    clicks.add(logits[s], batch.labels[s] == 1, batch.weights.empty() ? 1 : batch.weights[s]);
  }
  return clicks;
}

}  // namespace

TabularModel::TabularModel(std::vector<Variable> variables, std::vector<TableLookup> tables,
                           std::size_t numbers)
    : variables_(std::move(variables)),
      tables_(std::move(tables)),
      lookups_(lookupsOf(tables_)),
      numbers_(numbers) {
  for (const Variable& v : variables_) parameters_.emplace_back(v.elements());
}

std::span<float> TabularModel::weights(int variable) {
  TY_CHECK(variable >= 0 && variable < static_cast<int>(variables_.size()),
           "callers number variables as variables() does");
  return parameters_[static_cast<std::size_t>(variable)].values();
}

StatusOr<BatchLoss> TabularModel::forwardBackward(const Batch& batch, const GradientSink& sink) {
  row_gradients_.clear();
  TY_RETURN_IF_ERROR(accept(batch));
  const Emit emit = [&](int variable, GradientMemory memory, std::int64_t size) {
    const std::span<const float> values{memory.get(), static_cast<std::size_t>(size)};
    sink({.variable = variable,
          .values = values,
          .owner = std::move(memory),
          .rows = {},
          .on_device = false});
  };
  try {
    useComputeThreads();
    const float* logits = forward(batch, /*training=*/true);
    float* slopes = work_.beside(nullptr, batch.size());
    const LossSum sum = sigmoidCrossEntropy(logits, batch.labels, slopes, batch.weights);
    for (const std::vector<float>& rows : batch.rows) row_gradients_.emplace_back(rows.size());
    backward(batch, slopes, emit);
    return BatchLoss{.loss_sum = sum.loss, .samples = batch.size(), .hits = sum.hits};
  } catch (const std::exception& failure) {
    return failedPass("training pass", batch.size(), failure);
  }
}

void TabularModel::deliverIn(std::shared_ptr<std::pmr::memory_resource> memory) {
  if (memory != nullptr) work_.gradients = std::move(memory);
}

std::vector<std::vector<float>> TabularModel::takeRowGradients() {
  return std::exchange(row_gradients_, {});
}

StatusOr<BatchScore> TabularModel::evaluate(const Batch& batch) {
  TY_RETURN_IF_ERROR(accept(batch));
  try {
    useComputeThreads();
    const float* logits = forward(batch, /*training=*/false);
    const LossSum sum = sigmoidCrossEntropy(logits, batch.labels, nullptr, batch.weights);
    return BatchScore{.hits = sum.hits,
                      .samples = batch.size(),
                      .loss_sum = sum.loss,
                      .clicks = clicksOf(batch, logits)};
  } catch (const std::exception& failure) {
    return failedPass("evaluation", batch.size(), failure);
  }
}

std::vector<std::unique_ptr<Layer>> TabularModel::makeLayers(std::span<const LayerSpec> specs,
                                                             int first_number, std::uint64_t seed) {
  std::vector<std::unique_ptr<Layer>> layers;
  for (const LayerSpec& spec : specs) {
    const std::vector<std::int64_t>& shape =
        variables_[static_cast<std::size_t>(spec.weights)].shape;
    const int number = first_number + static_cast<int>(layers.size());
    layers.push_back(makeDense(spec, shape, weights(spec.weights).data(),
                               weights(spec.biases).data(),
                               Dropout{.seed = seed, .rate = spec.dropout, .layer = number}));
  }
  return layers;
}

void TabularModel::combine(const FeatureLookup& lookup, const Batch& batch, float* combined,
                           std::size_t stride) {
  combineRows(lookup.combiner, batch.features[lookup.feature], rowsOf(lookup, batch, batch.rows),
              lookup.dim, combined, stride);
}

void TabularModel::spread(const FeatureLookup& lookup, const Batch& batch, const float* combined,
                          std::size_t stride) {
  spreadGradient(lookup.combiner, batch.features[lookup.feature], combined, stride, lookup.dim,
                 rowsOf(lookup, batch, row_gradients_));
}

// Whether the batch fits; then finds each lookup's occurrences in it.
Status TabularModel::accept(const Batch& batch) {
  TY_RETURN_IF_ERROR(checkSamples(batch));
  if (batch.rows.size() != tables_.size()) {
    return invalidInput("data", fmt::format("rows of {} tables in a batch, expected {}",
                                            batch.rows.size(), tables_.size()));
  }
  std::vector<std::size_t> occurrences(tables_.size());
  for (FeatureLookup& lookup : lookups_) {
    if (lookup.feature >= batch.features.size() ||
        !wellFormed(batch.features[lookup.feature], batch.labels.size())) {
      return invalidInput("data", fmt::format("no ids of {} samples in column {} of a batch",
                                              batch.size(), lookup.feature));
    }
    lookup.first = occurrences[lookup.table];
    occurrences[lookup.table] += batch.features[lookup.feature].ids.size();
  }
  return checkRows(batch, occurrences);
}

Status TabularModel::checkSamples(const Batch& batch) const {
  const std::size_t count = batch.labels.size();
  if (count == 0) return invalidInput("data", "a batch without samples");
  if (batch.keys.size() != count || batch.numbers.size() != count * numbers_) {
    return invalidInput(
        "data", fmt::format("a batch of {} labels has {} keys and {} numbers, expected {}", count,
                            batch.keys.size(), batch.numbers.size(), count * numbers_));
  }
  if (!batch.weights.empty() && batch.weights.size() != count) {
    return invalidInput(
        "data", fmt::format("a batch of {} labels has {} weights", count, batch.weights.size()));
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (batch.labels[i] != 0 && batch.labels[i] != 1) {
      return invalidInput("data", fmt::format("sample {} has label {}, expected 0 or 1",
                                              batch.keys[i], batch.labels[i]));
    }
  }
  return absl::OkStatus();
}

Status TabularModel::checkRows(const Batch& batch,
                               const std::vector<std::size_t>& occurrences) const {
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    const std::size_t expected = occurrences[t] * tables_[t].dim;
    if (batch.rows[t].size() == expected) continue;
    return invalidInput(
        "data", fmt::format("a batch has {} values of rows of table {}, expected "
                            "{} occurrences of {}",
                            batch.rows[t].size(), tables_[t].name, occurrences[t], tables_[t].dim));
  }
  return absl::OkStatus();
}

}  // namespace trainyard::runtime
