// A layer of the processor's networks. Activations are arrays of floats: images NHWC, or units; a
// grid of 1x1 pixels is units. Only the .cc files of runtime/model include it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <span>

#include "base/core/recycled_memory.h"
#include "runtime/model/internal/buffer.h"
#include "runtime/model/kernels.h"
#include "runtime/model/network.h"
#include "runtime/model/onednn.h"

namespace trainyard::runtime {

// A gradient's memory, for whoever the gradient is delivered to.
using GradientMemory = std::shared_ptr<float>;

// Memory that the layers of one network use in turns and keep from pass to pass.
struct Workspace {
  // Memory for `size` values that is not the one at `used`: two activations or gradients that are
  // needed at the same time.
  float* beside(const float* used, std::int64_t size);
  // Memory for a gradient of so many values, not initialised.
  GradientMemory gradient(std::int64_t size) const;

  std::shared_ptr<OneDnnContext> onednn = makeOneDnnContext();
  std::array<Buffer<float>, 2> turns;
  Buffer<float> patches;
  Buffer<float> part;
  std::shared_ptr<std::pmr::memory_resource> gradients = std::make_shared<RecycledMemory>();
};

// What one pass hands from layer to layer beside the activations.
struct Pass {
  ImageGrid grid;  // of the current layer's input
  std::span<const std::int64_t> keys;
  bool training = false;
  Workspace& work;

  // Memory for an output of `size` values: `kept`, the layer's own, where backward() will need it.
  float* output(const float* input, Buffer<float>& kept, std::int64_t size) const {
    return training ? kept.atLeast(size) : work.beside(input, size);
  }
};

using Emit = std::function<void(int parameter, GradientMemory gradient, std::int64_t size)>;

// Biases that were added to each pixel of a `grid`: their gradient is the sum of its pixels.
void emitBiases(int parameter, const float* gradient, const ImageGrid& grid, const Workspace& work,
                const Emit& emit);

class Layer {
 public:
  virtual ~Layer() = default;
  // Returns the output, and sets pass.grid to its grid. When pass.training, input and output stay
  // as they are until backward().
  virtual const float* forward(const float* input, Pass& pass) = 0;
  // `gradient`, of the output, may be overwritten. Emits each parameter's gradient after that
  // parameter's last use: the next version may be written over it from then on. Returns the
  // gradient of the input, which is in `work`, or nullptr unless `input_gradient`.
  virtual float* backward(float* gradient, bool input_gradient, Workspace& work,
                          const Emit& emit) = 0;
};

std::unique_ptr<Layer> makeDense(const LayerSpec& spec, std::span<const std::int64_t> shape,
                                 const float* weights, const float* biases, Dropout dropout);
std::unique_ptr<Layer> makeConv(const LayerSpec& spec, std::span<const std::int64_t> shape,
                                const float* weights, const float* biases);
std::unique_ptr<Layer> makeConvPool(const LayerSpec& spec, std::span<const std::int64_t> shape,
                                    const float* weights, const float* biases);
// The same function for the network's first layer, whose input needs no gradient.
std::unique_ptr<Layer> makeFirstConvPool(const LayerSpec& spec, std::span<const std::int64_t> shape,
                                         const float* weights, const float* biases);
std::unique_ptr<Layer> makePool();

}  // namespace trainyard::runtime
