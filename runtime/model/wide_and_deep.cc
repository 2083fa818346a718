#include "runtime/model/wide_and_deep.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "fmt/format.h"
#include "runtime/model/internal/tabular_model.h"
#include "runtime/model/layer_specs.h"
#include "runtime/model/matrix.h"

namespace trainyard::runtime {
namespace {

constexpr std::string_view kNumbers = "numbers_wei";  // the catalogue's last one, if at all

bool hasNumbers(const std::vector<Variable>& variables) {
  return variables.back().name == kNumbers;
}

std::size_t numbersOf(const std::vector<Variable>& variables) {
  return hasNumbers(variables) ? static_cast<std::size_t>(variables.back().elements()) : 0;
}

bool isDeep(const FeatureLookup& lookup) {
  return lookup.dim > 1;
}

class WideAndDeep final : public TabularModel {
 public:
  WideAndDeep(const v1::ModelSpec& spec, const std::vector<Variable>& catalogued,
              std::vector<TableLookup> tables, std::uint64_t seed)
      : TabularModel(catalogued, std::move(tables), numbersOf(catalogued)),
        deep_inputs_(static_cast<std::size_t>(catalogued.front().shape.front())) {
    std::vector<Variable> dense = catalogued;
    if (hasNumbers(dense)) dense.pop_back();
    layers_ = makeLayers(layersOf(spec, dense), 0, seed);
  }

  Status checkTables() const {
    std::size_t inputs = numbers();
    for (const FeatureLookup& lookup : lookups())
      if (isDeep(lookup)) inputs += lookup.dim;
    if (inputs == deep_inputs_) return absl::OkStatus();
    return invalidInput("training.tables",
                        fmt::format("{} deep inputs of tables and numbers, the model is laid out "
                                    "for {}",
                                    inputs, deep_inputs_));
  }

 private:
  const float* forward(const Batch& batch, bool training) override {
    fillInput(batch);
    Pass pass{{batch.size(), 1, 1, static_cast<std::int64_t>(deep_inputs_)},
              batch.keys,
              training,
              work()};
    const float* values = input_.data();
    for (const auto& layer : layers_) values = layer->forward(values, pass);
    std::copy_n(values, batch.size(), logits_.atLeast(batch.size()));
    addWide(batch);
    return logits_.data();
  }

  // input_: [samples, deep inputs], of each deep lookup in order, then the numbers
  void fillInput(const Batch& batch) {
    const std::size_t samples = batch.labels.size();
    float* input = input_.atLeast(static_cast<std::int64_t>(samples * deep_inputs_));
    float* column = input;
    for (const FeatureLookup& lookup : lookups()) {
      if (!isDeep(lookup)) continue;
      combine(lookup, batch, column, deep_inputs_);
      column += lookup.dim;
    }
    for (std::size_t s = 0; s < samples; ++s) {
      std::copy_n(batch.numbers.data() + s * numbers(), numbers(),
                  input + (s + 1) * deep_inputs_ - numbers());
    }
  }

  void addWide(const Batch& batch) {
    float* logits = logits_.data();
    float* combined = combined_.atLeast(batch.size());
    for (const FeatureLookup& lookup : lookups()) {
      if (isDeep(lookup)) continue;
      combine(lookup, batch, combined, 1);
      for (int s = 0; s < batch.size(); ++s) logits[s] += combined[s];
    }
    if (numbers() == 0) return;
    const auto count = static_cast<std::int64_t>(numbers());
    multiply({batch.numbers.data(), batch.size(), count},
             {weights(numbersVariable()).data(), count, 1}, Into::kAdd, logits);
  }

  void backward(const Batch& batch, float* slopes, const Emit& emit) override {
    wideBackward(batch, slopes, emit);
    float* gradient = slopes;
    const bool input_gradient = deep_inputs_ > numbers();
    for (std::size_t i = layers_.size(); i-- > 0;)
      gradient = layers_[i]->backward(gradient, i > 0 || input_gradient, work(), emit);
    for (const FeatureLookup& lookup : lookups()) {
      if (!isDeep(lookup)) continue;
      spread(lookup, batch, gradient, deep_inputs_);
      gradient += lookup.dim;
    }
  }

  void wideBackward(const Batch& batch, const float* slopes, const Emit& emit) {
    for (const FeatureLookup& lookup : lookups())
      if (!isDeep(lookup)) spread(lookup, batch, slopes, 1);
    if (numbers() == 0) return;
    const auto count = static_cast<std::int64_t>(numbers());
    GradientMemory memory = work().gradient(count);
    multiply(transposed({batch.numbers.data(), batch.size(), count}), {slopes, batch.size(), 1},
             Into::kSet, memory.get());
    emit(numbersVariable(), std::move(memory), count);
  }

  int numbersVariable() const { return static_cast<int>(variables().size()) - 1; }

  std::size_t deep_inputs_;
  std::vector<std::unique_ptr<Layer>> layers_;
  Buffer<float> input_;     // [samples, deep inputs]
  Buffer<float> logits_;    // [samples]
  Buffer<float> combined_;  // [samples], of a lookup of the wide half
};

}  // namespace

StatusOr<std::unique_ptr<Model>> makeWideAndDeep(const v1::ModelSpec& spec,
                                                 const std::vector<Variable>& variables,
                                                 std::vector<TableLookup> tables,
                                                 std::uint64_t seed) {
  auto model = std::make_unique<WideAndDeep>(spec, variables, std::move(tables), seed);
  TY_RETURN_IF_ERROR(model->checkTables());
  return model;
}

}  // namespace trainyard::runtime
