#include "bench/torch_network.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/core/check.h"
#include "runtime/torch/internal/layer.h"

namespace trainyard::runtime {
namespace {

// Images computed at a time by the first layer: their patches and outputs (0.2 MB each for 28x28)
// stay in the second-level cache.
constexpr std::int64_t kImagesAtOnce = 2;

at::Tensor viewOf(const float* data, at::IntArrayRef shape) {
  return at::from_blob(const_cast<float*>(data), shape, at::kFloat);
}

class Dense : public TorchLayer {
 public:
  Dense(const LayerSpec& spec, at::Tensor weights, at::Tensor biases, Dropout dropout)
      : spec_(spec), weights_(std::move(weights)), biases_(std::move(biases)), dropout_(dropout) {}

  at::Tensor forward(const at::Tensor& input, TorchPass& pass) override {
    const at::Tensor flat = input.reshape({input.size(0), weights_.size(0)});
    at::Tensor output = at::addmm(biases_, flat, weights_);
    if (spec_.relu) activate(output, pass);
    if (pass.training) {
      input_ = flat;
      output_ = spec_.relu ? output : at::Tensor();
    }
    return output;
  }

  at::Tensor backward(at::Tensor gradient, bool input_gradient, const TorchEmit& emit) override {
    if (spec_.relu) {
      const float scale = spec_.dropout > 0 ? dropoutScale(spec_.dropout) : 1.0f;
      reluBackward({gradient.data_ptr<float>(), static_cast<std::size_t>(gradient.numel())},
                   output_.data_ptr<float>(), scale);
    }
    emit(spec_.biases, gradient.sum(0));
    at::Tensor weights = input_.t().matmul(gradient);
    // The weights' last use comes before their gradient leaves: the next version may be written
    // over them from then on.
    at::Tensor result = input_gradient ? gradient.matmul(weights_.t()) : at::Tensor();
    emit(spec_.weights, weights);
    input_.reset();
    output_.reset();
    return result;
  }

 private:
  void activate(at::Tensor& output, const TorchPass& pass) const {
    float* values = output.data_ptr<float>();
    if (pass.training && spec_.dropout > 0) {
      reluDropout(values, output.size(1), pass.keys, dropout_);
    } else {
      relu({values, static_cast<std::size_t>(output.numel())});
    }
  }

  LayerSpec spec_;
  at::Tensor weights_;
  at::Tensor biases_;
  Dropout dropout_;
  at::Tensor input_;
  at::Tensor output_;
};

// The bias is added after the pool.
class ConvPool : public TorchLayer {
 public:
  ConvPool(const LayerSpec& spec, at::Tensor weights, at::Tensor biases)
      : spec_(spec), convolution_(std::move(weights)), biases_(std::move(biases)) {}

  at::Tensor forward(const at::Tensor& input, TorchPass& pass) override {
    const at::Tensor conv = convolution_.forward(input, {});
    grid_ = pass.grid;
    grid_.channels = convolution_.outputs();
    const ImageGrid pooled = grid_.pooled();
    at::Tensor output = at::empty({pooled.count, pooled.height, pooled.width, pooled.channels});
    if (pass.training) {
      input_ = input;
      winners_.resize(static_cast<std::size_t>(pooled.elements()));
    }
    poolBiasRelu(conv.data_ptr<float>(), grid_, biases_.data_ptr<float>(), output.data_ptr<float>(),
                 pass.training ? winners_.data() : nullptr);
    pass.grid = pooled;
    return output;
  }

  at::Tensor backward(at::Tensor gradient, bool input_gradient, const TorchEmit& emit) override {
    at::Tensor conv = at::empty({grid_.count, grid_.height, grid_.width, grid_.channels});
    at::Tensor biases = at::zeros_like(biases_);
    poolBiasReluBackward(gradient.data_ptr<float>(), winners_.data(), grid_, conv.data_ptr<float>(),
                         biases.data_ptr<float>());
    emit(spec_.biases, biases);
    return convolution_.backward(conv, input_, input_gradient, spec_.weights, emit);
  }

 private:
  LayerSpec spec_;
  TorchConvolution convolution_;
  at::Tensor biases_;
  ImageGrid grid_;
  at::Tensor input_;
  std::vector<std::int32_t> winners_;
};

class Conv : public TorchLayer {
 public:
  Conv(const LayerSpec& spec, at::Tensor weights, at::Tensor biases)
      : spec_(spec), convolution_(std::move(weights)), biases_(std::move(biases)) {}

  at::Tensor forward(const at::Tensor& input, TorchPass& pass) override {
    at::Tensor output = convolution_.forward(input, biases_);
    relu({output.data_ptr<float>(), static_cast<std::size_t>(output.numel())});
    pass.grid.channels = convolution_.outputs();
    if (pass.training) {
      input_ = input;
      output_ = output;
    }
    return output;
  }

  at::Tensor backward(at::Tensor gradient, bool input_gradient, const TorchEmit& emit) override {
    reluBackward({gradient.data_ptr<float>(), static_cast<std::size_t>(gradient.numel())},
                 output_.data_ptr<float>(), 1.0f);
    gradient = gradient.view(output_.sizes());
    output_.reset();
    emit(spec_.biases, gradient.sum({0, 1, 2}));
    return convolution_.backward(gradient, input_, input_gradient, spec_.weights, emit);
  }

 private:
  LayerSpec spec_;
  TorchConvolution convolution_;
  at::Tensor biases_;
  at::Tensor input_;
  at::Tensor output_;
};

// The same function as ConvPool for the network's first layer, whose input has few channels and
// needs no gradient: a matrix product over patches, image by image, so that the convolution's
// output (13 MB for 128 images of 28x28x32) never leaves the cache. oneDNN takes ten times as long
// for one input channel where there is no AVX-512.
class FirstConvPool : public TorchLayer {
 public:
  FirstConvPool(const LayerSpec& spec, at::Tensor weights, at::Tensor biases)
      : spec_(spec),
        kernel_(static_cast<int>(weights.size(0))),
        channels_(weights.size(3)),
        matrix_(weights.view({-1, channels_})),
        biases_(std::move(biases)) {}

  at::Tensor forward(const at::Tensor& input, TorchPass& pass) override {
    input_grid_ = pass.grid;
    const ImageGrid pooled = outputGrid(input_grid_.count).pooled();
    at::Tensor output = at::empty({pooled.count, pooled.height, pooled.width, pooled.channels});
    if (pass.training) {
      input_ = input;
      winners_.resize(static_cast<std::size_t>(pooled.elements()));
    }
    const std::int64_t image = pooled.elements() / std::max<std::int64_t>(1, pooled.count);
    forEachPart([&](std::int64_t first, std::int64_t count) {
      at::Tensor patches = patchesOf(input, first, count);
      at::Tensor conv = scratchRows(conv_, outputGrid(count).pixels(), channels_);
      at::mm_out(conv, patches, matrix_);
      poolBiasRelu(conv.data_ptr<float>(), outputGrid(count), biases_.data_ptr<float>(),
                   output.data_ptr<float>() + first * image,
                   pass.training ? winners_.data() + first * image : nullptr);
    });
    pass.grid = pooled;
    return output;
  }

  at::Tensor backward(at::Tensor gradient, bool input_gradient, const TorchEmit& emit) override {
    TY_CHECK(!input_gradient, "the first layer's input is data");
    at::Tensor weights = at::zeros_like(matrix_);
    at::Tensor biases = at::zeros_like(biases_);
    const std::int64_t image = gradient.numel() / std::max<std::int64_t>(1, input_grid_.count);
    forEachPart([&](std::int64_t first, std::int64_t count) {
      at::Tensor conv = scratchRows(conv_, outputGrid(count).pixels(), channels_);
      poolBiasReluBackward(gradient.data_ptr<float>() + first * image,
                           winners_.data() + first * image, outputGrid(count),
                           conv.data_ptr<float>(), biases.data_ptr<float>());
      weights.addmm_(patchesOf(input_, first, count).t(), conv);
    });
    emit(spec_.biases, biases);
    emit(spec_.weights, weights);
    input_.reset();
    return {};
  }

 private:
  ImageGrid outputGrid(std::int64_t count) const {
    return {count, input_grid_.height, input_grid_.width, channels_};
  }

  template <typename F>
  void forEachPart(F part) const {
    for (std::int64_t first = 0; first < input_grid_.count; first += kImagesAtOnce) {
      part(first, std::min(kImagesAtOnce, input_grid_.count - first));
    }
  }

  at::Tensor patchesOf(const at::Tensor& input, std::int64_t first, std::int64_t count) {
    ImageGrid grid = input_grid_;
    grid.count = count;
    at::Tensor patches = scratchRows(patches_, grid.pixels(), matrix_.size(0));
    extractPatches(input.data_ptr<float>() + first * grid.elements() / count, grid, kernel_,
                   patches.data_ptr<float>());
    return patches;
  }

  // The first `rows` rows of a buffer that is kept from call to call.
  static at::Tensor scratchRows(at::Tensor& buffer, std::int64_t rows, std::int64_t columns) {
    if (!buffer.defined() || buffer.size(0) < rows) buffer = at::empty({rows, columns});
    return buffer.narrow(0, 0, rows);
  }

  LayerSpec spec_;
  int kernel_;
  std::int64_t channels_;
  at::Tensor matrix_;  // the HWIO kernel as [height * width * in, out], sharing its memory
  at::Tensor biases_;
  ImageGrid input_grid_;
  at::Tensor input_;
  at::Tensor patches_;
  at::Tensor conv_;
  std::vector<std::int32_t> winners_;
};

class LayeredNetwork : public Network {
 public:
  LayeredNetwork(const std::vector<std::vector<std::int64_t>>& shapes,
                 const std::vector<LayerSpec>& specs, std::uint64_t seed) {
    for (const auto& shape : shapes) parameters_.push_back(at::zeros(shape));
    for (std::size_t i = 0; i < specs.size(); ++i) layers_.push_back(makeLayer(specs[i], i, seed));
  }

  std::span<float> parameter(int number) override {
    at::Tensor& tensor = parameters_[number];
    return {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
  }

  LossSum forwardBackward(const Samples& samples, const ParameterGradientSink& sink) override {
    const at::Tensor logits = forward(samples, true);
    at::Tensor gradient = at::empty_like(logits);
    const LossSum loss = softmaxCrossEntropy(logits.data_ptr<float>(), logits.size(1),
                                             samples.labels, gradient.data_ptr<float>());
    const TorchEmit emit = [&](int parameter, const at::Tensor& tensor) {
      const std::span<const float> values{tensor.data_ptr<float>(),
                                          static_cast<std::size_t>(tensor.numel())};
      sink(parameter, values, std::make_shared<at::Tensor>(tensor), {});
    };
    for (std::size_t i = layers_.size(); i-- > 0;) {
      gradient = layers_[i]->backward(std::move(gradient), i > 0, emit);
    }
    return loss;
  }

  LossSum evaluate(const Samples& samples) override {
    const at::Tensor logits = forward(samples, false);
    return softmaxCrossEntropy(logits.data_ptr<float>(), logits.size(1), samples.labels, nullptr);
  }

 private:
  std::unique_ptr<TorchLayer> makeLayer(const LayerSpec& spec, std::size_t number,
                                        std::uint64_t seed) {
    if (spec.kind == LayerSpec::Kind::kPool) return std::make_unique<TorchPool>();
    const at::Tensor& weights = parameters_[spec.weights];
    const at::Tensor& biases = parameters_[spec.biases];
    switch (spec.kind) {
      case LayerSpec::Kind::kConv:
        return std::make_unique<Conv>(spec, weights, biases);
      case LayerSpec::Kind::kConvPool:
        if (number == 0) return std::make_unique<FirstConvPool>(spec, weights, biases);
        return std::make_unique<ConvPool>(spec, weights, biases);
      default:
        return std::make_unique<Dense>(spec, weights, biases,
                                       Dropout{seed, spec.dropout, static_cast<int>(number)});
    }
  }

  at::Tensor forward(const Samples& samples, bool training) {
    // OpenMP keeps its number of threads per thread: a thread that never set it would take all
    // cores.
    at::init_num_threads();
    const auto [height, width, channels] = samples.shape;
    TorchPass pass{{samples.count(), height, width, channels}, samples.keys, training};
    at::Tensor values = viewOf(samples.images, {samples.count(), height, width, channels});
    for (const auto& layer : layers_) values = layer->forward(values, pass);
    return values;
  }

  std::vector<at::Tensor> parameters_;
  std::vector<std::unique_ptr<TorchLayer>> layers_;
};

}  // namespace

std::unique_ptr<Network> makeTorchNetwork(
    const std::vector<std::vector<std::int64_t>>& parameter_shapes,
    const std::vector<LayerSpec>& layers, std::uint64_t seed) {
  return std::make_unique<LayeredNetwork>(parameter_shapes, layers, seed);
}

}  // namespace trainyard::runtime
