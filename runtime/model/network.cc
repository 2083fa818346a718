#include "runtime/model/network.h"

#include <utility>

#include "runtime/model/internal/layer.h"
#include "runtime/model/internal/parameter.h"
#include "runtime/model/threads.h"

namespace trainyard::runtime {
namespace {

using Shape = std::vector<std::int64_t>;

std::int64_t sizeOf(const Shape& shape) {
  std::int64_t size = 1;
  for (const std::int64_t side : shape) size *= side;
  return size;
}

class LayeredNetwork : public Network {
 public:
  LayeredNetwork(const std::vector<Shape>& shapes, const std::vector<LayerSpec>& specs,
                 std::uint64_t seed) {
    for (const Shape& shape : shapes) parameters_.emplace_back(sizeOf(shape));
    for (std::size_t i = 0; i < specs.size(); ++i)
      layers_.push_back(makeLayer(shapes, specs[i], static_cast<int>(i), seed));
  }

  std::span<float> parameter(int number) override {
    return parameters_[static_cast<std::size_t>(number)].values();
  }

  LossSum forwardBackward(const Samples& samples, const ParameterGradientSink& sink) override {
    const Output logits = forward(samples, true);
    float* gradient = work_.beside(logits.values, logits.classes * samples.count());
    const LossSum loss =
        softmaxCrossEntropy(logits.values, logits.classes, samples.labels, gradient);
    const Emit emit = [&](int parameter, GradientMemory memory, std::int64_t size) {
      const std::span<const float> values{memory.get(), static_cast<std::size_t>(size)};
      sink(parameter, values, std::move(memory), {});
    };
    for (std::size_t i = layers_.size(); i-- > 0;)
      gradient = layers_[i]->backward(gradient, i > 0, work_, emit);
    return loss;
  }

  void deliverIn(std::shared_ptr<std::pmr::memory_resource> memory) override {
    if (memory != nullptr) work_.gradients = std::move(memory);
  }

  LossSum evaluate(const Samples& samples) override {
    const Output logits = forward(samples, false);
    return softmaxCrossEntropy(logits.values, logits.classes, samples.labels, nullptr);
  }

 private:
  struct Output {
    const float* values = nullptr;
    std::int64_t classes = 0;
  };

  std::unique_ptr<Layer> makeLayer(const std::vector<Shape>& shapes, const LayerSpec& spec,
                                   int number, std::uint64_t seed) {
    if (spec.kind == LayerSpec::Kind::kPool) return makePool();
    const Shape& shape = shapes[static_cast<std::size_t>(spec.weights)];
    const float* weights = parameter(spec.weights).data();
    const float* biases = parameter(spec.biases).data();
    switch (spec.kind) {
      case LayerSpec::Kind::kConv:
        return makeConv(spec, shape, weights, biases);
      case LayerSpec::Kind::kConvPool:
        return number == 0 ? makeFirstConvPool(spec, shape, weights, biases)
                           : makeConvPool(spec, shape, weights, biases);
      default:
        return makeDense(spec, shape, weights, biases, Dropout{seed, spec.dropout, number});
    }
  }

  Output forward(const Samples& samples, bool training) {
    useComputeThreads();
    const auto [height, width, channels] = samples.shape;
    Pass pass{{samples.count(), height, width, channels}, samples.keys, training, work_};
    const float* values = samples.images;
    for (const auto& layer : layers_) values = layer->forward(values, pass);
    return {values, pass.grid.channels};
  }

  std::vector<Parameter> parameters_;
  Workspace work_;
  std::vector<std::unique_ptr<Layer>> layers_;
};

}  // namespace

std::unique_ptr<Network> makeNetwork(const std::vector<Shape>& parameter_shapes,
                                     const std::vector<LayerSpec>& layers, std::uint64_t seed) {
  return std::make_unique<LayeredNetwork>(parameter_shapes, layers, seed);
}

}  // namespace trainyard::runtime
