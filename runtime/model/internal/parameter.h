// The values of one trainable variable. Only the .cc files of runtime/model include it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "runtime/model/internal/buffer.h"

namespace trainyard::runtime {

// Zeros at first. Stays where it is when it is moved.
class Parameter {
 public:
  explicit Parameter(std::int64_t size) : memory_(size), size_(static_cast<std::size_t>(size)) {
    std::fill_n(memory_.data(), size, 0.0f);
  }
  std::span<float> values() { return {memory_.data(), size_}; }

 private:
  Buffer<float> memory_;
  std::size_t size_;
};

}  // namespace trainyard::runtime
