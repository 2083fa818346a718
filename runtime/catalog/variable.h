// What placement, wire, checkpoint and model agree on about one variable.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard::runtime {

enum class DType { kFloat32, kInt32 };

// How a fresh variable is filled; see initialise() in catalog.h.
struct Initializer {
  enum class Kind { kZeros, kConstant, kTruncatedNormal } kind = Kind::kZeros;
  float value = 0;  // kConstant: the constant; kTruncatedNormal: the standard deviation
};

// TensorFlow's layout: convolution kernels HWIO, dense kernels [in, out]; row-major.
struct Variable {
  std::string name;
  std::vector<std::int64_t> shape;  // {} is a scalar
  DType dtype = DType::kFloat32;
  Initializer initializer;
  bool trainable = true;

  std::int64_t elements() const {
    std::int64_t n = 1;
    for (std::int64_t d : shape) n *= d;
    return n;
  }
  std::int64_t bytes() const { return elements() * 4; }
};

}  // namespace trainyard::runtime
