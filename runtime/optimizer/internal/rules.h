// The rules themselves, with their parameters already float32 and valid.
#pragma once

#include <memory>

#include "runtime/optimizer/optimizer.h"
#include "runtime/tensor/internal/isa.h"

namespace trainyard::runtime::internal {

std::unique_ptr<Optimizer> makeSgd(Isa isa);
std::unique_ptr<Optimizer> makeMomentum(Isa isa, float momentum, bool nesterov);
std::unique_ptr<Optimizer> makeAdagrad(Isa isa, float initial_accumulator);
std::unique_ptr<Optimizer> makeAdadelta(Isa isa, float rho, float epsilon);
std::unique_ptr<Optimizer> makeAdam(Isa isa, float beta1, float beta2, float epsilon);
std::unique_ptr<Optimizer> makeRmsProp(Isa isa, float rho, float momentum, float epsilon,
                                       bool centered);

// makeOptimizer() with the loops of one instruction set, which this machine must support.
StatusOr<std::unique_ptr<Optimizer>> makeOptimizer(const v1::OptimizerSpec& spec, Isa isa);

}  // namespace trainyard::runtime::internal
