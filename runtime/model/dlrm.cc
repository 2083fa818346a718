#include "runtime/model/dlrm.h"

#include <algorithm>
#include <span>
#include <utility>

#include "fmt/format.h"
#include "runtime/model/interaction.h"
#include "runtime/model/internal/tabular_model.h"
#include "runtime/model/layer_specs.h"

namespace trainyard::runtime {
namespace {

using Layers = std::vector<std::unique_ptr<Layer>>;

std::size_t height(const Variable& kernel) {
  return static_cast<std::size_t>(kernel.shape.front());
}

class Dlrm final : public TabularModel {
 public:
  Dlrm(const v1::ModelSpec& spec, const std::vector<Variable>& catalogued,
       std::vector<TableLookup> tables, std::uint64_t seed)
      : TabularModel(catalogued, std::move(tables), height(catalogued.front())),
        vectors_{.count = 1 + lookups().size(),
                 .dim = static_cast<std::size_t>(*spec.bottom_hidden().rbegin())} {
    const std::vector<LayerSpec> layers = layersOf(spec, catalogued);
    const int bottom = spec.bottom_hidden_size();
    const auto split = layers.begin() + bottom;
    bottom_ = makeLayers({layers.begin(), split}, 0, seed);
    top_ = makeLayers({split, layers.end()}, bottom, seed);
    top_inputs_ = height(catalogued[static_cast<std::size_t>(split->weights)]);
  }

  Status checkTables(const std::vector<TableLookup>& tables) const {
    for (const TableLookup& table : tables) {
      if (table.dim == vectors_.dim) continue;
      return invalidInput("training.tables", fmt::format("table {} has dim {}, the last width of "
                                                         "model.bottomHidden is {}",
                                                         table.name, table.dim, vectors_.dim));
    }
    if (vectors_.outputs() == top_inputs_) return absl::OkStatus();
    return invalidInput("training.tables",
                        fmt::format("{} features make {} inputs of the top layers, the model is "
                                    "laid out for {}",
                                    lookups().size(), vectors_.outputs(), top_inputs_));
  }

 private:
  const float* forward(const Batch& batch, bool training) override {
    fillVectors(batch, passOf(bottom_, batch.numbers.data(), numbers(), batch, training));
    const auto samples = static_cast<std::int64_t>(batch.labels.size());
    float* interactions = interactions_.atLeast(samples * ints(top_inputs_));
    interact(vectors_, inputs_.data(), samples, interactions);
    return passOf(top_, interactions, top_inputs_, batch, training);
  }

  const float* passOf(const Layers& layers, const float* values, std::size_t width,
                      const Batch& batch, bool training) {
    Pass pass{{batch.size(), 1, 1, ints(width)}, batch.keys, training, work()};
    for (const auto& layer : layers) values = layer->forward(values, pass);
    return values;
  }

  // inputs_: [samples, vectors, dim], the first being what the bottom layers make of the numbers
  void fillVectors(const Batch& batch, const float* bottom) {
    const std::size_t samples = batch.labels.size(), stride = vectors_.inputs();
    float* vectors = inputs_.atLeast(ints(samples * stride));
    for (std::size_t s = 0; s < samples; ++s)
      std::copy_n(bottom + s * vectors_.dim, vectors_.dim, vectors + s * stride);
    for (const FeatureLookup& lookup : lookups()) {
      vectors += vectors_.dim;
      combine(lookup, batch, vectors, stride);
    }
  }

  void backward(const Batch& batch, float* slopes, const Emit& emit) override {
    const float* interactions = gradientOf(top_, slopes, /*input_gradient=*/true, emit);
    const auto samples = static_cast<std::int64_t>(batch.labels.size());
    const std::size_t stride = vectors_.inputs();
    float* vectors = input_gradients_.atLeast(samples * ints(stride));
    interactBackward(vectors_, inputs_.data(), interactions, samples, vectors);
    const float* of_lookup = vectors;
    for (const FeatureLookup& lookup : lookups()) {
      of_lookup += vectors_.dim;
      spread(lookup, batch, of_lookup, stride);
    }
    float* bottom = work().beside(nullptr, samples * ints(vectors_.dim));
    for (std::int64_t s = 0; s < samples; ++s)
      std::copy_n(vectors + s * ints(stride), vectors_.dim, bottom + s * ints(vectors_.dim));
    gradientOf(bottom_, bottom, /*input_gradient=*/false, emit);
  }

  float* gradientOf(const Layers& layers, float* gradient, bool input_gradient, const Emit& emit) {
    for (std::size_t i = layers.size(); i-- > 0;)
      gradient = layers[i]->backward(gradient, i > 0 || input_gradient, work(), emit);
    return gradient;
  }

  static std::int64_t ints(std::size_t size) { return static_cast<std::int64_t>(size); }

  Interaction vectors_;
  std::size_t top_inputs_ = 0;
  Layers bottom_;
  Layers top_;
  Buffer<float> inputs_;           // [samples, vectors, dim]
  Buffer<float> input_gradients_;  // the same
  Buffer<float> interactions_;     // [samples, top inputs]
};

}  // namespace

StatusOr<std::unique_ptr<Model>> makeDlrm(const v1::ModelSpec& spec,
                                          const std::vector<Variable>& variables,
                                          std::vector<TableLookup> tables, std::uint64_t seed) {
  auto model = std::make_unique<Dlrm>(spec, variables, tables, seed);
  TY_RETURN_IF_ERROR(model->checkTables(tables));
  return model;
}

}  // namespace trainyard::runtime
