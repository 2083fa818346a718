// One layer's convolution for whatever batches come. Only the .cc files of runtime/model include
// it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/model/internal/layer.h"

namespace trainyard::runtime {

class Convolution {
 public:
  // The kernel is HWIO and belongs to somebody else, as do the biases (nullptr: none).
  Convolution(std::span<const std::int64_t> shape, const float* kernel, const float* biases)
      : side_(shape[0]), outputs_(shape[3]), kernel_(kernel), biases_(biases) {}

  std::int64_t outputs() const { return outputs_; }
  void forward(const float* input, const ImageGrid& grid, float* output, Workspace& work);
  // Of the batch that went forward last. Emits the kernel's gradient as `parameter`, and returns
  // the input's as of Layer::backward().
  float* backward(const float* input, const float* gradient, bool input_gradient, int parameter,
                  Workspace& work, const Emit& emit);

 private:
  // Sizes of batches whose primitives are kept: a job's own, and what is left at the end of an
  // epoch; the same of an evaluation.
  static constexpr std::size_t kKept = 4;

  OneDnnConvolution& forBatch(const ImageGrid& grid, const Workspace& work);

  std::int64_t side_;
  std::int64_t outputs_;
  const float* kernel_;
  const float* biases_;
  std::vector<OneDnnConvolution> kept_;  // the one used last is the last
};

}  // namespace trainyard::runtime
