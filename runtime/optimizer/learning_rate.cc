#include <cmath>

#include "runtime/optimizer/optimizer.h"

namespace trainyard::runtime {

LearningRate::LearningRate(const v1::OptimizerSpec& spec)
    : base_(static_cast<float>(spec.has_learning_rate() ? spec.learning_rate()
                                                        : kDefaultLearningRate)),
      warmup_(spec.warmup_steps()),
      every_(spec.decay().every()),
      rate_(static_cast<float>(spec.decay().rate())),
      staircase_(spec.decay().staircase()) {}

float LearningRate::at(std::int64_t step) const {
  const float rate = decayed(step);
  if (step + 1 >= warmup_) return rate;
  return rate * (static_cast<float>(step + 1) / static_cast<float>(warmup_));
}

float LearningRate::decayed(std::int64_t step) const {
  if (every_ <= 0) return base_;
  float exponent = static_cast<float>(step) / static_cast<float>(every_);
  if (staircase_) exponent = std::floor(exponent);
  return base_ * std::pow(rate_, exponent);
}

}  // namespace trainyard::runtime
