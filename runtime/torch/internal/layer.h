// Layers of LibTorch's operators. Only the .cc files of runtime/torch include it.
#pragma once

#include <ATen/ATen.h>

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <tuple>
#include <utility>

#include "runtime/model/kernels.h"

namespace trainyard::runtime {

// What one pass hands from layer to layer beside the activations.
struct TorchPass {
  ImageGrid grid;  // of the current layer's input where that is images
  std::span<const std::int64_t> keys;
  bool training = false;
};

using TorchEmit = std::function<void(int parameter, const at::Tensor& gradient)>;

// The same memory with the dimensions in the order that LibTorch's image operators take.
inline at::Tensor nchw(const at::Tensor& images) {
  return images.permute({0, 3, 1, 2});
}
// Copies only what is not channels-last.
inline at::Tensor nhwc(const at::Tensor& images) {
  return images.permute({0, 2, 3, 1}).contiguous();
}

// Activations travel between layers as contiguous tensors: images [n, h, w, c], else [n, units].
class TorchLayer {
 public:
  virtual ~TorchLayer() = default;
  // Keeps what backward() needs when pass.training; sets pass.grid for the next layer.
  virtual at::Tensor forward(const at::Tensor& input, TorchPass& pass) = 0;
  // Emits each parameter's gradient after that parameter's last use, and returns the gradient of
  // the input, undefined unless `input_gradient`.
  virtual at::Tensor backward(at::Tensor gradient, bool input_gradient, const TorchEmit& emit) = 0;
};

// Convolution through LibTorch's own (oneDNN on CPUs, cuDNN on GPUs), channels-last.
class TorchConvolution {
 public:
  explicit TorchConvolution(at::Tensor weights) : weights_(std::move(weights)) {}

  // [n, h, w, c] -> [n, h, w, outputs], contiguous; without a bias when it is undefined.
  at::Tensor forward(const at::Tensor& input, const at::Tensor& biases) const {
    return nhwc(at::convolution(nchw(input), kernel(), biases, {1, 1}, padding(), {1, 1}, false,
                                {0, 0}, 1));
  }
  // As TorchLayer::backward(), for the weights, which are `parameter`. Lets go of the input.
  at::Tensor backward(const at::Tensor& gradient, at::Tensor& input, bool input_gradient,
                      int parameter, const TorchEmit& emit) const {
    // The weights' last use comes before their gradient leaves, see Dense.
    at::Tensor result;
    if (input_gradient)
      result = nhwc(std::get<0>(gradients(gradient, input, {true, false, false})));
    emit(parameter, std::get<1>(gradients(gradient, input, {false, true, false}))
                        .permute({2, 3, 1, 0})
                        .contiguous());
    input.reset();
    return result;
  }
  std::int64_t outputs() const { return weights_.size(3); }

 private:
  at::Tensor kernel() const { return weights_.permute({3, 2, 0, 1}); }
  std::array<std::int64_t, 2> padding() const {
    return {weights_.size(0) / 2, weights_.size(1) / 2};
  }
  std::tuple<at::Tensor, at::Tensor, at::Tensor> gradients(const at::Tensor& gradient,
                                                           const at::Tensor& input,
                                                           std::array<bool, 3> mask) const {
    return at::convolution_backward(nchw(gradient), nchw(input), kernel(), c10::nullopt, {1, 1},
                                    padding(), {1, 1}, false, {0, 0}, 1, mask);
  }

  at::Tensor weights_;  // HWIO
};

// Without padding.
class TorchPool : public TorchLayer {
 public:
  at::Tensor forward(const at::Tensor& input, TorchPass& pass) override {
    const auto [output, winners] = at::max_pool2d_with_indices(nchw(input), {2, 2}, {2, 2});
    pass.grid.height /= 2;
    pass.grid.width /= 2;
    if (pass.training) {
      input_ = input;
      winners_ = winners;
    }
    return nhwc(output);
  }

  at::Tensor backward(at::Tensor gradient, bool input_gradient, const TorchEmit&) override {
    at::Tensor result;
    if (input_gradient) {
      const at::Tensor images =
          gradient.view({input_.size(0), input_.size(1) / 2, input_.size(2) / 2, input_.size(3)});
      result = nhwc(at::max_pool2d_with_indices_backward(nchw(images), nchw(input_), {2, 2}, {2, 2},
                                                         {0, 0}, {1, 1}, false, winners_));
    }
    input_.reset();
    winners_.reset();
    return result;
  }

 private:
  at::Tensor input_;
  at::Tensor winners_;
};

}  // namespace trainyard::runtime
