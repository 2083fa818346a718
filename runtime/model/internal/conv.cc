// A convolution with bias and ReLU.
#include "runtime/model/internal/convolution.h"
#include "runtime/model/internal/layer.h"

namespace trainyard::runtime {
namespace {

class Conv : public Layer {
 public:
  Conv(const LayerSpec& spec, std::span<const std::int64_t> shape, const float* weights,
       const float* biases)
      : spec_(spec), convolution_(shape, weights, biases) {}

  const float* forward(const float* input, Pass& pass) override {
    ImageGrid grid = pass.grid;
    grid.channels = convolution_.outputs();
    float* output = pass.output(input, output_, grid.elements());
    convolution_.forward(input, pass.grid, output, pass.work);
    relu({output, static_cast<std::size_t>(grid.elements())});
    input_ = input;
    grid_ = grid;
    pass.grid = grid;
    return output;
  }

  float* backward(float* gradient, bool input_gradient, Workspace& work,
                  const Emit& emit) override {
    reluBackward({gradient, static_cast<std::size_t>(grid_.elements())}, output_.data(), 1.0f);
    emitBiases(spec_.biases, gradient, grid_, work, emit);
    return convolution_.backward(input_, gradient, input_gradient, spec_.weights, work, emit);
  }

 private:
  LayerSpec spec_;
  Convolution convolution_;
  ImageGrid grid_;  // of the output
  const float* input_ = nullptr;
  Buffer<float> output_;
};

}  // namespace

std::unique_ptr<Layer> makeConv(const LayerSpec& spec, std::span<const std::int64_t> shape,
                                const float* weights, const float* biases) {
  return std::make_unique<Conv>(spec, shape, weights, biases);
}

}  // namespace trainyard::runtime
