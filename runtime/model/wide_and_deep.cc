#include "runtime/model/wide_and_deep.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <span>
#include <string_view>
#include <utility>

#include "base/core/check.h"
#include "fmt/format.h"
#include "runtime/model/internal/failed_pass.h"
#include "runtime/model/internal/layer.h"
#include "runtime/model/internal/parameter.h"
#include "runtime/model/layer_specs.h"
#include "runtime/model/matrix.h"
#include "runtime/model/threads.h"

namespace trainyard::runtime {
namespace {

constexpr std::string_view kNumbers = "numbers_wei";  // the catalogue's last one, if at all

// A feature that is looked up in a table.
struct FeatureLookup {
  std::size_t table = 0;
  std::size_t feature = 0;  // of Columns::features
  std::size_t dim = 1;
  Combiner combiner = Combiner::kMean;
  std::size_t column = 0;  // of the deep input, where its combined row goes
  std::size_t first = 0;   // in the batch at hand: its first occurrence in the table

  bool deep() const { return dim > 1; }
};

// In the order of tables and features, which is that of the occurrences of each table.
std::vector<FeatureLookup> lookupsOf(const std::vector<TableLookup>& tables) {
  std::vector<FeatureLookup> lookups;
  std::size_t column = 0;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    for (const std::size_t feature : tables[t].features) {
      const FeatureLookup lookup{.table = t,
                                 .feature = feature,
                                 .dim = tables[t].dim,
                                 .combiner = tables[t].combiner,
                                 .column = column,
                                 .first = 0};
      if (lookup.deep()) column += lookup.dim;
      lookups.push_back(lookup);
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

class WideAndDeep final : public Model {
 public:
  WideAndDeep(const v1::ModelSpec& spec, std::vector<Variable> variables,
              std::vector<TableLookup> tables, std::uint64_t seed)
      : variables_(std::move(variables)),
        tables_(std::move(tables)),
        lookups_(lookupsOf(tables_)),
        deep_inputs_(static_cast<std::size_t>(variables_.front().shape.front())) {
    for (const Variable& v : variables_) parameters_.emplace_back(v.elements());
    std::vector<Variable> dense = variables_;
    if (dense.back().name == kNumbers) {
      numbers_ = static_cast<std::size_t>(dense.back().elements());
      dense.pop_back();
    }
    makeLayers(layersOf(spec, dense), seed);
  }

  Status checkTables() const {
    std::size_t inputs = numbers_;
    for (const FeatureLookup& lookup : lookups_)
      if (lookup.deep()) inputs += lookup.dim;
    if (inputs == deep_inputs_) return absl::OkStatus();
    return invalidInput("training.tables",
                        fmt::format("{} deep inputs of tables and numbers, the model is laid out "
                                    "for {}",
                                    inputs, deep_inputs_));
  }

  const std::vector<Variable>& variables() const override { return variables_; }

  std::span<float> weights(int variable) override {
    TY_CHECK(variable >= 0 && variable < static_cast<int>(variables_.size()),
             "callers number variables as variables() does");
    return parameters_[static_cast<std::size_t>(variable)].values();
  }

  StatusOr<BatchLoss> forwardBackward(const Batch& batch, const GradientSink& sink) override {
    row_gradients_.clear();
    TY_RETURN_IF_ERROR(accept(batch));
    try {
      forward(batch, /*training=*/true);
      float* slopes = work_.beside(nullptr, batch.size());
      const LossSum sum = sigmoidCrossEntropy(logits_.data(), batch.labels, slopes);
      backward(batch, slopes, sink);
      return BatchLoss{.loss_sum = sum.loss, .samples = batch.size()};
    } catch (const std::exception& failure) {
      return failedPass("training pass", batch.size(), failure);
    }
  }

  void deliverIn(std::shared_ptr<std::pmr::memory_resource> memory) override {
    work_.gradients = std::move(memory);
  }

  std::vector<std::vector<float>> takeRowGradients() override {
    return std::exchange(row_gradients_, {});
  }

  StatusOr<BatchScore> evaluate(const Batch& batch) override {
    TY_RETURN_IF_ERROR(accept(batch));
    try {
      forward(batch, /*training=*/false);
      const LossSum sum = sigmoidCrossEntropy(logits_.data(), batch.labels, nullptr);
      return BatchScore{.hits = sum.hits,
                        .samples = batch.size(),
                        .loss_sum = sum.loss,
                        .clicks = clicksOf(batch)};
    } catch (const std::exception& failure) {
      return failedPass("evaluation", batch.size(), failure);
    }
  }

 private:
  void makeLayers(const std::vector<LayerSpec>& specs, std::uint64_t seed) {
    for (const LayerSpec& spec : specs) {
      const std::vector<std::int64_t>& shape =
          variables_[static_cast<std::size_t>(spec.weights)].shape;
      const auto number = static_cast<int>(layers_.size());
      layers_.push_back(makeDense(spec, shape, weights(spec.weights).data(),
                                  weights(spec.biases).data(),
                                  Dropout{.seed = seed, .rate = spec.dropout, .layer = number}));
    }
  }

  // Whether the batch fits; then finds each lookup's occurrences in it.
  Status accept(const Batch& batch) {
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

  Status checkSamples(const Batch& batch) const {
    const std::size_t count = batch.labels.size();
    if (count == 0) return invalidInput("data", "a batch without samples");
    if (batch.keys.size() != count || batch.numbers.size() != count * numbers_) {
      return invalidInput(
          "data", fmt::format("a batch of {} labels has {} keys and {} numbers, expected {}", count,
                              batch.keys.size(), batch.numbers.size(), count * numbers_));
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (batch.labels[i] != 0 && batch.labels[i] != 1) {
        return invalidInput("data", fmt::format("sample {} has label {}, expected 0 or 1",
                                                batch.keys[i], batch.labels[i]));
      }
    }
    return absl::OkStatus();
  }

  Status checkRows(const Batch& batch, const std::vector<std::size_t>& occurrences) const {
    for (std::size_t t = 0; t < tables_.size(); ++t) {
      const std::size_t expected = occurrences[t] * tables_[t].dim;
      if (batch.rows[t].size() == expected) continue;
      return invalidInput("data", fmt::format("a batch has {} values of rows of table {}, expected "
                                              "{} occurrences of {}",
                                              batch.rows[t].size(), tables_[t].name, occurrences[t],
                                              tables_[t].dim));
    }
    return absl::OkStatus();
  }

  // Leaves the samples' logits in logits_.
  void forward(const Batch& batch, bool training) {
    useComputeThreads();
    fillInput(batch);
    Pass pass{
        {batch.size(), 1, 1, static_cast<std::int64_t>(deep_inputs_)}, batch.keys, training, work_};
    const float* values = input_.data();
    for (const auto& layer : layers_) values = layer->forward(values, pass);
    std::copy_n(values, batch.size(), logits_.atLeast(batch.size()));
    addWide(batch);
  }

  // input_: [samples, deep inputs]
  void fillInput(const Batch& batch) {
    const std::size_t samples = batch.labels.size();
    float* input = input_.atLeast(static_cast<std::int64_t>(samples * deep_inputs_));
    for (const FeatureLookup& lookup : lookups_)
      if (lookup.deep()) combine(lookup, batch, input + lookup.column, deep_inputs_);
    for (std::size_t s = 0; s < samples; ++s) {
      std::copy_n(batch.numbers.data() + s * numbers_, numbers_,
                  input + (s + 1) * deep_inputs_ - numbers_);
    }
  }

  // Of logits_.
  ClickScores clicksOf(const Batch& batch) {
    ClickScores clicks;
    for (std::size_t s = 0; s < batch.labels.size(); ++s) {
      const float logit = logits_.data()[s];
      clicks.add(logit, 1 / (1 + std::exp(-static_cast<double>(logit))), batch.labels[s] == 1);
    }
    return clicks;
  }

  void addWide(const Batch& batch) {
    float* logits = logits_.data();
    float* combined = combined_.atLeast(batch.size());
    for (const FeatureLookup& lookup : lookups_) {
      if (lookup.deep()) continue;
      combine(lookup, batch, combined, 1);
      for (int s = 0; s < batch.size(); ++s) logits[s] += combined[s];
    }
    if (numbers_ == 0) return;
    const auto count = static_cast<std::int64_t>(numbers_);
    multiply({batch.numbers.data(), batch.size(), count},
             {parameters_.back().values().data(), count, 1}, Into::kAdd, logits);
  }

  static void combine(const FeatureLookup& lookup, const Batch& batch, float* to,
                      std::size_t stride) {
    combineRows(lookup.combiner, batch.features[lookup.feature], rowsOf(lookup, batch, batch.rows),
                lookup.dim, to, stride);
  }

  // `slopes`: the loss's by logit, in work_; overwritten.
  void backward(const Batch& batch, float* slopes, const GradientSink& sink) {
    const Emit emit = [&](int variable, GradientMemory memory, std::int64_t size) {
      const std::span<const float> values{memory.get(), static_cast<std::size_t>(size)};
      sink({.variable = variable,
            .values = values,
            .owner = std::move(memory),
            .rows = {},
            .on_device = false});
    };
    for (const std::vector<float>& rows : batch.rows) row_gradients_.emplace_back(rows.size());
    wideBackward(batch, slopes, emit);
    float* gradient = slopes;
    const bool input_gradient = deep_inputs_ > numbers_;
    for (std::size_t i = layers_.size(); i-- > 0;)
      gradient = layers_[i]->backward(gradient, i > 0 || input_gradient, work_, emit);
    for (const FeatureLookup& lookup : lookups_)
      if (lookup.deep()) spread(lookup, batch, gradient + lookup.column, deep_inputs_);
  }

  void wideBackward(const Batch& batch, const float* slopes, const Emit& emit) {
    for (const FeatureLookup& lookup : lookups_)
      if (!lookup.deep()) spread(lookup, batch, slopes, 1);
    if (numbers_ == 0) return;
    const auto count = static_cast<std::int64_t>(numbers_);
    GradientMemory memory = work_.gradient(count);
    multiply(transposed({batch.numbers.data(), batch.size(), count}), {slopes, batch.size(), 1},
             Into::kSet, memory.get());
    emit(static_cast<int>(variables_.size()) - 1, std::move(memory), count);
  }

  void spread(const FeatureLookup& lookup, const Batch& batch, const float* combined,
              std::size_t stride) {
    spreadGradient(lookup.combiner, batch.features[lookup.feature], combined, stride, lookup.dim,
                   rowsOf(lookup, batch, row_gradients_));
  }

  std::vector<Variable> variables_;
  std::vector<TableLookup> tables_;
  std::vector<FeatureLookup> lookups_;
  std::size_t deep_inputs_;
  std::size_t numbers_ = 0;            // the last ones of the deep inputs
  std::vector<Parameter> parameters_;  // by variable
  Workspace work_;
  std::vector<std::unique_ptr<Layer>> layers_;
  Buffer<float> input_;                            // [samples, deep inputs]
  Buffer<float> logits_;                           // [samples]
  Buffer<float> combined_;                         // [samples], of a lookup of the wide half
  std::vector<std::vector<float>> row_gradients_;  // as Batch::rows, of the newest training pass
};

}  // namespace

StatusOr<std::unique_ptr<Model>> makeWideAndDeep(const v1::ModelSpec& spec,
                                                 std::vector<Variable> variables,
                                                 std::vector<TableLookup> tables,
                                                 std::uint64_t seed) {
  auto model = std::make_unique<WideAndDeep>(spec, std::move(variables), std::move(tables), seed);
  TY_RETURN_IF_ERROR(model->checkTables());
  return model;
}

}  // namespace trainyard::runtime
