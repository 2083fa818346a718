// vgg19 once more, put together from LibTorch's operators in double precision and differentiated by
// its autograd: what ours is compared with. Free of torch, like the header of the network.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace trainyard::runtime::reference {

struct Vgg19Batch {
  std::array<int, 3> shape{};  // height, width, channels
  std::vector<float> images;   // NHWC
  std::vector<std::int64_t> labels;
  // What the outputs of fc6 and fc7 are multiplied by, [sample][unit]; empty: by nothing.
  std::array<std::vector<double>, 2> masks;
};

struct Vgg19Pass {
  double loss = 0;  // sum over the samples
  std::int64_t hits = 0;
  std::vector<std::vector<double>> gradients;  // if asked for: of the parameters, in their layout
};

// `weights` and `shapes`: kernel (HWIO, [in, out]) and bias of one layer after the other.
Vgg19Pass vgg19Pass(const std::vector<std::vector<float>>& weights,
                    const std::vector<std::vector<std::int64_t>>& shapes, const Vgg19Batch& batch,
                    bool gradients);

}  // namespace trainyard::runtime::reference
