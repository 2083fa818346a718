// A convolution, a pool, bias and ReLU. The bias is added after the pool, which gives the same.
#include <algorithm>
#include <utility>

#include "runtime/model/internal/convolution.h"
#include "runtime/model/internal/layer.h"

namespace trainyard::runtime {
namespace {

class ConvPool : public Layer {
 public:
  ConvPool(const LayerSpec& spec, std::span<const std::int64_t> shape, const float* weights,
           const float* biases)
      : spec_(spec), convolution_(shape, weights, nullptr), biases_(biases) {}

  const float* forward(const float* input, Pass& pass) override {
    grid_ = pass.grid;
    grid_.channels = convolution_.outputs();
    float* conv = pass.work.beside(input, grid_.elements());
    convolution_.forward(input, pass.grid, conv, pass.work);
    const ImageGrid pooled = grid_.pooled();
    float* output = pass.output(conv, output_, pooled.elements());
    poolBiasRelu(conv, grid_, biases_, output,
                 pass.training ? winners_.atLeast(pooled.elements()) : nullptr);
    input_ = input;
    pass.grid = pooled;
    return output;
  }

  float* backward(float* gradient, bool input_gradient, Workspace& work,
                  const Emit& emit) override {
    float* conv = work.beside(gradient, grid_.elements());
    GradientMemory biases = work.gradient(grid_.channels);
    std::fill_n(biases.get(), grid_.channels, 0.0f);
    poolBiasReluBackward(gradient, winners_.data(), grid_, conv, biases.get());
    emit(spec_.biases, std::move(biases), grid_.channels);
    return convolution_.backward(input_, conv, input_gradient, spec_.weights, work, emit);
  }

 private:
  LayerSpec spec_;
  Convolution convolution_;
  const float* biases_;
  ImageGrid grid_;  // of the convolution's output
  const float* input_ = nullptr;
  Buffer<float> output_;
  Buffer<std::int32_t> winners_;
};

}  // namespace

std::unique_ptr<Layer> makeConvPool(const LayerSpec& spec, std::span<const std::int64_t> shape,
                                    const float* weights, const float* biases) {
  return std::make_unique<ConvPool>(spec, shape, weights, biases);
}

}  // namespace trainyard::runtime
