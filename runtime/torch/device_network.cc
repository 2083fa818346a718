#include "runtime/model/device_network.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/core/check.h"
#include "runtime/torch/internal/device_copies.h"
#include "runtime/torch/internal/layer.h"

namespace trainyard::runtime {
namespace {

// What reluDropout() multiplies with, where the value is above 0: 0 or 1 / (1 - rate).
at::Tensor dropoutFactors(std::span<const std::int64_t> keys, std::int64_t units,
                          const Dropout& dropout, const at::Device& device) {
  at::Tensor host =
      at::ones({static_cast<std::int64_t>(keys.size()), units}, hostOptions(device, at::kFloat));
  reluDropout(host.data_ptr<float>(), units, keys, dropout);
  return host.to(device, /*non_blocking=*/true);
}

class DeviceDense : public TorchLayer {
 public:
  DeviceDense(const LayerSpec& spec, at::Tensor weights, at::Tensor biases, Dropout dropout)
      : spec_(spec), weights_(std::move(weights)), biases_(std::move(biases)), dropout_(dropout) {}

  at::Tensor forward(const at::Tensor& input, TorchPass& pass) override {
    const at::Tensor flat = input.reshape({input.size(0), weights_.size(0)});
    at::Tensor output = at::addmm(biases_, flat, weights_);
    if (spec_.relu) output.relu_();
    if (!pass.training) return output;
    if (spec_.relu && spec_.dropout > 0) {
      factors_ = dropoutFactors(pass.keys, output.size(1), dropout_, output.device());
      output.mul_(factors_);
    }
    input_ = flat;
    output_ = spec_.relu ? output : at::Tensor();
    return output;
  }

  at::Tensor backward(at::Tensor gradient, bool input_gradient, const TorchEmit& emit) override {
    if (factors_.defined()) gradient = gradient * factors_;
    if (spec_.relu) gradient = at::threshold_backward(gradient, output_, 0);
    emit(spec_.biases, gradient.sum(0));
    at::Tensor result = input_gradient ? gradient.matmul(weights_.t()) : at::Tensor();
    emit(spec_.weights, input_.t().matmul(gradient));
    input_.reset();
    output_.reset();
    factors_.reset();
    return result;
  }

 private:
  LayerSpec spec_;
  at::Tensor weights_;
  at::Tensor biases_;
  Dropout dropout_;
  at::Tensor factors_;
  at::Tensor input_;
  at::Tensor output_;
};

class DeviceConv : public TorchLayer {
 public:
  DeviceConv(const LayerSpec& spec, at::Tensor weights, at::Tensor biases)
      : spec_(spec), convolution_(std::move(weights)), biases_(std::move(biases)) {}

  at::Tensor forward(const at::Tensor& input, TorchPass& pass) override {
    at::Tensor output = convolution_.forward(input, biases_).relu_();
    if (pass.training) {
      input_ = input;
      output_ = output;
    }
    return output;
  }

  at::Tensor backward(at::Tensor gradient, bool input_gradient, const TorchEmit& emit) override {
    gradient = at::threshold_backward(gradient.view(output_.sizes()), output_, 0);
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

// Pool, then bias and ReLU, which give the same in either order. An odd last row or column is a
// window of its own.
class DeviceConvPool : public TorchLayer {
 public:
  DeviceConvPool(const LayerSpec& spec, at::Tensor weights, at::Tensor biases)
      : spec_(spec), convolution_(std::move(weights)), biases_(std::move(biases)) {}

  at::Tensor forward(const at::Tensor& input, TorchPass& pass) override {
    const at::Tensor conv = convolution_.forward(input, {});
    const auto [pooled, winners] =
        at::max_pool2d_with_indices(nchw(conv), {2, 2}, {2, 2}, {0, 0}, {1, 1}, kWholeWindows);
    at::Tensor output = nhwc(pooled).add(biases_).relu_();
    if (pass.training) {
      input_ = input;
      conv_ = conv;
      winners_ = winners;
      output_ = output;
    }
    return output;
  }

  at::Tensor backward(at::Tensor gradient, bool input_gradient, const TorchEmit& emit) override {
    gradient = at::threshold_backward(gradient.view(output_.sizes()), output_, 0);
    output_.reset();
    emit(spec_.biases, gradient.sum({0, 1, 2}));
    gradient = nhwc(at::max_pool2d_with_indices_backward(
        nchw(gradient), nchw(conv_), {2, 2}, {2, 2}, {0, 0}, {1, 1}, kWholeWindows, winners_));
    conv_.reset();
    winners_.reset();
    return convolution_.backward(gradient, input_, input_gradient, spec_.weights, emit);
  }

 private:
  static constexpr bool kWholeWindows = true;  // ceil_mode

  LayerSpec spec_;
  TorchConvolution convolution_;
  at::Tensor biases_;
  at::Tensor input_;
  at::Tensor conv_;
  at::Tensor winners_;
  at::Tensor output_;
};

// Softmax cross-entropy in 64 bits; the values are on the device until somebody asks.
struct DeviceLoss {
  at::Tensor sum;
  at::Tensor hits;
  at::Tensor gradient;  // of the logits, as softmaxCrossEntropy()'s

  LossSum read() const { return {sum.item<double>(), hits.item<std::int64_t>()}; }
};

DeviceLoss lossOf(const at::Tensor& logits, const at::Tensor& labels, bool training) {
  const at::Tensor column = labels.unsqueeze(1);
  const at::Tensor logarithms = logits.to(at::kDouble).log_softmax(1);
  DeviceLoss loss;
  loss.sum = logarithms.gather(1, column).sum().neg();
  loss.hits = logits.argmax(1).eq(labels).sum();
  if (!training) return loss;
  const at::Tensor classes = at::arange(logits.size(1), labels.options());
  loss.gradient = (logarithms.exp() - column.eq(classes).to(at::kDouble)).to(at::kFloat);
  return loss;
}

class DeviceNetwork : public Network {
 public:
  DeviceNetwork(std::vector<at::Tensor> parameters, const std::vector<LayerSpec>& specs,
                std::uint64_t seed, const at::Device& device)
      : device_(device), weights_(parameters) {
    for (std::size_t i = 0; i < specs.size(); ++i)
      layers_.push_back(makeLayer(specs[i], static_cast<int>(i), parameters, seed));
  }

  std::span<float> parameter(int number) override {
    return weights_.host(static_cast<std::size_t>(number));
  }

  LossSum forwardBackward(const Samples& samples, const ParameterGradientSink& sink) override {
    const c10::DeviceGuard here(device_);
    const DeviceLoss loss = pass(samples, true);
    GradientCopies copies(device_, on_device_);
    const TorchEmit emit = [&](int parameter, const at::Tensor& gradient) {
      copies.add(parameter, gradient);
    };
    at::Tensor gradient = loss.gradient;
    for (std::size_t i = layers_.size(); i-- > 0;)
      gradient = layers_[i]->backward(std::move(gradient), i > 0, emit);
    copies.deliver(sink);
    return loss.read();
  }

  bool deliverOnDevice(bool wanted) override {
    on_device_ = wanted;
    return true;
  }

  LossSum evaluate(const Samples& samples) override {
    const c10::DeviceGuard here(device_);
    return pass(samples, false).read();
  }

 private:
  static std::unique_ptr<TorchLayer> makeLayer(const LayerSpec& spec, int number,
                                               const std::vector<at::Tensor>& parameters,
                                               std::uint64_t seed) {
    if (spec.kind == LayerSpec::Kind::kPool) return std::make_unique<TorchPool>();
    const at::Tensor& weights = parameters[static_cast<std::size_t>(spec.weights)];
    const at::Tensor& biases = parameters[static_cast<std::size_t>(spec.biases)];
    switch (spec.kind) {
      case LayerSpec::Kind::kConv:
        return std::make_unique<DeviceConv>(spec, weights, biases);
      case LayerSpec::Kind::kConvPool:
        return std::make_unique<DeviceConvPool>(spec, weights, biases);
      default:
        return std::make_unique<DeviceDense>(spec, weights, biases,
                                             Dropout{seed, spec.dropout, number});
    }
  }

  // The forward pass.
  DeviceLoss pass(const Samples& samples, bool training) {
    // OpenMP keeps its number of threads per thread: a thread that never set it would take all
    // cores.
    at::init_num_threads();
    weights_.upload();
    const auto [height, width, channels] = samples.shape;
    TorchPass pass{{samples.count(), height, width, channels}, samples.keys, training};
    at::Tensor values =
        toDevice(samples.images, {samples.count(), height, width, channels}, at::kFloat, device_);
    const at::Tensor labels =
        toDevice(samples.labels.data(), {samples.count()}, at::kLong, device_);
    for (const auto& layer : layers_) values = layer->forward(values, pass);
    return lossOf(values, labels, training);
  }

  at::Device device_;
  WeightCopies weights_;
  std::vector<std::unique_ptr<TorchLayer>> layers_;
  bool on_device_ = false;  // gradients are delivered there
};

}  // namespace

std::unique_ptr<Network> makeDeviceNetwork(
    const std::vector<std::vector<std::int64_t>>& parameter_shapes,
    const std::vector<LayerSpec>& layers, std::uint64_t seed, const std::string& device) {
  const at::Device target(device);
  std::vector<at::Tensor> parameters;
  for (const auto& shape : parameter_shapes)
    parameters.push_back(at::zeros(shape, at::TensorOptions().device(target)));
  return std::make_unique<DeviceNetwork>(std::move(parameters), layers, seed, target);
}

}  // namespace trainyard::runtime
