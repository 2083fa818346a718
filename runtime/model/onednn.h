// oneDNN: convolutions, products of matrices. onednn.cc is the only file that includes it, by its
// interface for C: some LibTorch builds bring a copy of another version, whose C++ classes have the
// same names.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/model/kernels.h"
#include "runtime/model/matrix.h"

namespace trainyard::runtime {

std::string oneDnnVersion();
// Of the processor, unless ONEDNN_MAX_CPU_ISA says less.
bool oneDnnHasAvx512();
// As multiply().
void oneDnnMultiply(const Matrix& a, const Matrix& b, Into into, float* out);

// What convolutions share that are computed one after the other, by one thread at a time: oneDNN's
// engine, and scratch memory.
struct OneDnnContext;
std::shared_ptr<OneDnnContext> makeOneDnnContext();

// A convolution of NHWC images of one size with stride 1 and SAME padding. Kernels and their
// gradients are HWIO; oneDNN's own order, whatever it is, does not leave onednn.cc. Failures are
// exceptions: std::bad_alloc, and std::runtime_error for all others.
class OneDnnConvolution {
 public:
  struct Shape {
    ImageGrid input;
    std::int64_t outputs = 0;
    std::int64_t kernel = 0;  // its side, odd
    bool bias = false;

    ImageGrid output() const { return {input.count, input.height, input.width, outputs}; }
  };

  OneDnnConvolution(const Shape& shape, std::shared_ptr<OneDnnContext> context);
  OneDnnConvolution(OneDnnConvolution&&) noexcept;
  OneDnnConvolution& operator=(OneDnnConvolution&&) noexcept;
  ~OneDnnConvolution();

  const Shape& shape() const;
  // `biases` where the shape has them.
  void forward(const float* input, const float* kernel, const float* biases, float* output);
  void inputGradient(const float* gradient, const float* kernel, float* input_gradient);
  void kernelGradient(const float* input, const float* gradient, float* kernel_gradient);

 private:
  struct Primitives;
  std::unique_ptr<Primitives> primitives_;
};

}  // namespace trainyard::runtime
