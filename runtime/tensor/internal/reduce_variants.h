// The functions of reduce.h as compiled for one instruction set; for tests and benches.
#pragma once

#include "runtime/tensor/internal/isa.h"
#include "runtime/tensor/reduce.h"

namespace trainyard::runtime::internal {

void reduceInto(Isa isa, ElementType type, ReduceOp op, std::byte* acc, const std::byte* x,
                std::int64_t n);
void reduceAcross(Isa isa, ElementType type, ReduceOp op, std::span<const std::byte* const> sources,
                  std::span<std::byte* const> targets, std::int64_t n);
void divideElements(Isa isa, ElementType type, std::byte* x, std::int64_t n, std::int64_t divisor);
void scaleElements(Isa isa, ElementType type, std::byte* x, std::int64_t n, double factor);
void narrowFloats(Isa isa, ElementType type, std::byte* narrow, const std::byte* wide,
                  std::int64_t n);
void widenFloats(Isa isa, ElementType type, std::byte* wide, const std::byte* narrow,
                 std::int64_t n);
void addWidened(Isa isa, ElementType type, float* acc, const std::byte* x, std::int64_t n);
void roundFloats(Isa isa, ElementType type, std::span<float> x);

}  // namespace trainyard::runtime::internal
