// The kernels of kernels.h as compiled for one instruction set; for tests and benches.
#pragma once

#include "runtime/tensor/internal/isa.h"
#include "runtime/tensor/kernels.h"

namespace trainyard::runtime::internal {

void addFloats(Isa isa, float* acc, const std::byte* x, std::int64_t n);
void divideFloats(Isa isa, std::span<float> x, float divisor);
void scaleFloats(Isa isa, std::span<float> x, float factor);
bool allFinite(Isa isa, std::span<const float> x);

}  // namespace trainyard::runtime::internal
