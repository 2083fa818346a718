// A feed-forward network as a list of layers, computed on the processor by oneDNN, OpenBLAS and the
// loops of kernels.h; networks of other kinds have the same interface. Free of torch and of
// protobuf: some LibTorch builds bring protobuf headers of another version.
//
// The backward pass is written out layer by layer rather than recorded: a parameter's gradient
// leaves as soon as it is computed, always on the calling thread, in the variable's layout, and is
// accumulated nowhere. The same samples give the same bits, as long as the number of threads is the
// same.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <vector>

#include "runtime/model/kernels.h"

namespace trainyard::runtime {

struct LayerSpec {
  enum class Kind {
    kConvPool,  // odd square kernel, stride 1, SAME; bias; 2x2 max pool, SAME; ReLU
    kConv,      // odd square kernel, stride 1, SAME; bias; ReLU
    kPool,      // 2x2 max pool without padding: an odd last row or column is left out
    kDense,     // flattens its input, NHWC order
  };
  Kind kind = Kind::kDense;
  int weights = 0;  // parameter numbers (not of kPool); conv kernels HWIO, dense kernels [in, out]
  int biases = 0;
  bool relu = true;    // kDense
  double dropout = 0;  // kDense with ReLU: rate of units dropped in training
};

// Samples in the caller's memory: NHWC images, labels in [0, classes), keys for dropout (may be
// empty where nothing is trained).
struct Samples {
  std::array<int, 3> shape{};  // height, width, channels
  const float* images = nullptr;
  std::span<const std::int64_t> labels;
  std::span<const std::int64_t> keys;

  std::int64_t count() const { return static_cast<std::int64_t>(labels.size()); }
};

// parameter, gradient (sum over the samples, contiguous, in the parameter's layout), owner of its
// memory, rows as of Gradient (model.h)
using ParameterGradientSink = std::function<void(
    int, std::span<const float>, std::shared_ptr<const void>, std::span<const std::int64_t> rows)>;

// Owned by one thread. Failures are exceptions: std::bad_alloc, or another std::exception that says
// which library failed.
class Network {
 public:
  virtual ~Network() = default;
  virtual std::span<float> parameter(int number) = 0;
  // Training pass; every parameter's gradient is delivered once, from the last layer to the first.
  virtual LossSum forwardBackward(const Samples& samples, const ParameterGradientSink& sink) = 0;
  // As Model's.
  virtual std::vector<int> deliverRows() { return {}; }
  virtual bool deliverOnDevice(bool wanted) { return !wanted; }
  virtual void deliverIn(std::shared_ptr<std::pmr::memory_resource> /*memory*/) {}
  // Forward only, without dropout.
  virtual LossSum evaluate(const Samples& samples) = 0;
  // What passes change beside the parameters, which is only read by evaluate(); empty: nothing.
  virtual std::string saveState() { return {}; }
  virtual void loadState(const std::string&) {}
};

// Parameters start as zeros. Precondition: the shapes fit the layers and their input; the last
// layer is dense and without ReLU.
std::unique_ptr<Network> makeNetwork(const std::vector<std::vector<std::int64_t>>& parameter_shapes,
                                     const std::vector<LayerSpec>& layers, std::uint64_t seed);

}  // namespace trainyard::runtime
