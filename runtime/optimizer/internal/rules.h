// The rules themselves, with their parameters already float32 and valid.
#pragma once

#include <memory>

#include "runtime/optimizer/optimizer.h"
#include "runtime/tensor/internal/isa.h"

namespace trainyard::runtime::internal {

// What all rules have in common.
struct RuleCommon {
  Isa isa = Isa::kBaseline;
  float weight_decay = 0;
};

std::unique_ptr<Optimizer> makeSgd(RuleCommon common);
std::unique_ptr<Optimizer> makeMomentum(RuleCommon common, float momentum, bool nesterov);
std::unique_ptr<Optimizer> makeAdagrad(RuleCommon common, float initial_accumulator);
std::unique_ptr<Optimizer> makeAdadelta(RuleCommon common, float rho, float epsilon);
std::unique_ptr<Optimizer> makeAdam(RuleCommon common, float beta1, float beta2, float epsilon);
std::unique_ptr<Optimizer> makeRmsProp(RuleCommon common, float rho, float momentum, float epsilon,
                                       bool centered);
// As the job has them; not doubled as in the formula.
struct FtrlTerms {
  float l1 = 0;
  float l2 = 0;
  float l2_shrinkage = 0;
};
std::unique_ptr<Optimizer> makeFtrl(RuleCommon common, float initial_accumulator, FtrlTerms terms);

// makeOptimizer() with the loops of one instruction set, which this machine must support.
StatusOr<std::unique_ptr<Optimizer>> makeOptimizer(const v1::OptimizerSpec& spec, Isa isa);

}  // namespace trainyard::runtime::internal
