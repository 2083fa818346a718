// A pool without padding.
#include "runtime/model/internal/layer.h"

namespace trainyard::runtime {
namespace {

class Pool : public Layer {
 public:
  const float* forward(const float* input, Pass& pass) override {
    grid_ = pass.grid;
    pass.grid = grid_.pooledWhole();
    const std::int64_t size = pass.grid.elements();
    float* output = pass.output(input, output_, size);
    maxPool(input, grid_, output, pass.training ? winners_.atLeast(size) : nullptr);
    return output;
  }

  float* backward(float* gradient, bool input_gradient, Workspace& work, const Emit&) override {
    if (!input_gradient) return nullptr;
    float* result = work.beside(gradient, grid_.elements());
    maxPoolBackward(gradient, winners_.data(), grid_, result);
    return result;
  }

 private:
  ImageGrid grid_;  // of the input
  Buffer<float> output_;
  Buffer<std::int32_t> winners_;
};

}  // namespace

std::unique_ptr<Layer> makePool() {
  return std::make_unique<Pool>();
}

}  // namespace trainyard::runtime
