// A matrix product, bias, ReLU and dropout.
#include <utility>

#include "runtime/model/internal/layer.h"
#include "runtime/model/matrix.h"

namespace trainyard::runtime {
namespace {

class Dense : public Layer {
 public:
  Dense(const LayerSpec& spec, std::span<const std::int64_t> shape, const float* weights,
        const float* biases, Dropout dropout)
      : spec_(spec), weights_{weights, shape[0], shape[1]}, biases_(biases), dropout_(dropout) {}

  const float* forward(const float* input, Pass& pass) override {
    const ImageGrid grid{pass.grid.count, 1, 1, weights_.columns};
    float* output = pass.output(input, output_, grid.elements());
    fillPixels(biases_, grid, output);
    multiply({input, grid.count, weights_.rows}, weights_, Into::kAdd, output);
    if (spec_.relu) activate(output, grid, pass);
    input_ = input;
    grid_ = grid;
    pass.grid = grid;
    return output;
  }

  float* backward(float* gradient, bool input_gradient, Workspace& work,
                  const Emit& emit) override {
    if (spec_.relu) {
      const float scale = spec_.dropout > 0 ? dropoutScale(spec_.dropout) : 1.0f;
      reluBackward({gradient, static_cast<std::size_t>(grid_.elements())}, output_.data(), scale);
    }
    emitBiases(spec_.biases, gradient, grid_, work, emit);
    const Matrix outputs{gradient, grid_.count, grid_.channels};
    float* result = nullptr;
    if (input_gradient) {
      result = work.beside(gradient, grid_.count * weights_.rows);
      multiply(outputs, transposed(weights_), Into::kSet, result);
    }
    const std::int64_t size = weights_.rows * weights_.columns;
    GradientMemory weights = work.gradient(size);
    multiply(transposed({input_, grid_.count, weights_.rows}), outputs, Into::kSet, weights.get());
    emit(spec_.weights, std::move(weights), size);
    return result;
  }

 private:
  void activate(float* values, const ImageGrid& grid, const Pass& pass) const {
    if (pass.training && spec_.dropout > 0) {
      reluDropout(values, grid.channels, pass.keys, dropout_);
    } else {
      relu({values, static_cast<std::size_t>(grid.elements())});
    }
  }

  LayerSpec spec_;
  Matrix weights_;
  const float* biases_;
  Dropout dropout_;
  ImageGrid grid_;  // of the output
  const float* input_ = nullptr;
  Buffer<float> output_;
};

}  // namespace

std::unique_ptr<Layer> makeDense(const LayerSpec& spec, std::span<const std::int64_t> shape,
                                 const float* weights, const float* biases, Dropout dropout) {
  return std::make_unique<Dense>(spec, shape, weights, biases, dropout);
}

}  // namespace trainyard::runtime
