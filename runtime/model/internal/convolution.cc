#include "runtime/model/internal/convolution.h"

#include <algorithm>
#include <utility>

namespace trainyard::runtime {

OneDnnConvolution& Convolution::forBatch(const ImageGrid& grid, const Workspace& work) {
  const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const OneDnnConvolution& one) {
    return one.shape().input == grid;
  });
  if (found != kept_.end()) {
    std::rotate(found, found + 1, kept_.end());
  } else {
    OneDnnConvolution made({grid, outputs_, side_, biases_ != nullptr}, work.onednn);
    if (kept_.size() == kKept) kept_.erase(kept_.begin());
    kept_.push_back(std::move(made));
  }
  return kept_.back();
}

void Convolution::forward(const float* input, const ImageGrid& grid, float* output,
                          Workspace& work) {
  forBatch(grid, work).forward(input, kernel_, biases_, output);
}

float* Convolution::backward(const float* input, const float* gradient, bool input_gradient,
                             int parameter, Workspace& work, const Emit& emit) {
  OneDnnConvolution& batch = kept_.back();
  float* result = nullptr;
  if (input_gradient) {
    result = work.beside(gradient, batch.shape().input.elements());
    batch.inputGradient(gradient, kernel_, result);
  }
  const std::int64_t size = side_ * side_ * batch.shape().input.channels * outputs_;
  GradientMemory kernel = work.gradient(size);
  batch.kernelGradient(input, gradient, kernel.get());
  emit(parameter, std::move(kernel), size);
  return result;
}

}  // namespace trainyard::runtime
