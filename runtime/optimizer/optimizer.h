// Update rules of TensorFlow 1.x, element by element in float32 and in its order of operations, and
// learning-rate schedules. Pure; no allocation.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/status.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::runtime {

// Where the spec names none: what TensorFlow's Adam and Adadelta start with.
inline constexpr double kDefaultLearningRate = 0.001;

// The schedule: tf.compat.v1.train.exponential_decay, rate * decay_rate ^ (step / every), the
// exponent floored when staircase; in float32 as TensorFlow computes it. With warm-up over W steps
// the rate of a step s < W is that times (s + 1) / W, one float32 division and one product: linear
// from learningRate / W to learningRate, the gradual warm-up of Goyal et al., "Accurate, Large
// Minibatch SGD" (arXiv:1706.02677, 2.2), and the schedule's own bits from step W - 1 on. `step` is
// the global step before the update. Immutable. The spec is one that makeOptimizer() accepts.
class LearningRate {
 public:
  explicit LearningRate(const v1::OptimizerSpec& spec);
  float at(std::int64_t step) const;

 private:
  float decayed(std::int64_t step) const;

  float base_;
  std::int64_t warmup_;  // 0: none
  std::int64_t every_;   // 0: constant
  float rate_;
  bool staircase_;
};

// What an update needs beside the chunk's own arrays.
struct UpdateContext {
  std::int64_t step = 0;  // 0-based global step that this update completes into step + 1
  float learning_rate = 0;
};

// One rule for all chunks of a job; thread-safe, and a function of its arguments alone: the same
// bits on every machine, for any cut of a variable into chunks, in any order of calls.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Names of the slot arrays, e.g. {"rms", "momentum"}; each has the chunk's length.
  virtual const std::vector<std::string>& slots() const = 0;
  // A slot's first value (RMSProp's rms 1, Adagrad's accumulator 0.1, otherwise 0).
  virtual float initialSlot(std::size_t slot) const = 0;
  // w_new[i] = rule(w[i], gradient[i], slots[.][i]). `gradient` is the mean gradient. w_new may be
  // the same memory as `gradient` (in place) or as `w`; slots are updated in place. All spans
  // equally long; apart from these two they do not overlap. Subnormal numbers count as zero, as in
  // TensorFlow.
  virtual void apply(const UpdateContext& context, std::span<const float> w,
                     std::span<const float> gradient, std::span<float> w_new,
                     std::span<const std::span<float>> slots) const = 0;
};

// The rule of the spec, one of
//   SGD       w -= g lr
//   Momentum  a = a momentum + g;  w -= a lr  (nesterov: w -= g lr + a momentum lr)
//   Adagrad   a += g^2;  w -= g lr / sqrt(a)
//   Adadelta  a = a rho + g^2 (1 - rho);  u = sqrt(d + epsilon) / sqrt(a + epsilon) g;  w -= u lr;
//             d = d rho + u^2 (1 - rho)
//   Adam      m += (g - m) (1 - beta1);  v += (g^2 - v) (1 - beta2);
//             w -= m (lr sqrt(1 - beta2^t) / (1 - beta1^t)) / (sqrt(v) + epsilon),  t = step + 1
//   RMSProp   s += (g^2 - s) (1 - rho);  b = b momentum + g lr / sqrt(s + epsilon);  w -= b
//             (centered: c += (g - c) (1 - rho), and s - c^2 + epsilon under the root)
//   Ftrl      n' = n + g^2;  z += g + 2 l2Shrinkage w - (sqrt(n') - sqrt(n)) / lr w;  n = n';
//             w = (min(max(z, -l1), l1) - z) / (sqrt(n) / lr + 2 l2)
// as the kernels of tensorflow/core/kernels/training_ops.cc compute them. With weightDecay d the
// rule starts from w - w d lr (rounded after each operation) instead of w: decoupled weight decay,
// Loshchilov & Hutter, "Decoupled Weight Decay Regularization" (ICLR 2019, arXiv:1711.05101), with
// the step's whole learning rate as factor, as Keras's optimizers and PyTorch's AdamW have it. It
// reaches no slot, and is the same for every element of every variable. What is absent takes
// TensorFlow's default: rho 0.95 (Adadelta), 0.9 (RMSProp); epsilon 1e-8 (Adadelta, Adam), 1e-10
// (RMSProp); beta1 0.9, beta2 0.999; initial accumulator 0.1 (Adagrad, Ftrl); l1, l2, l2Shrinkage
// 0; momentum 0 (RMSProp) - but 0.9 for Momentum, where TensorFlow has none. Ftrl is FTRL-Proximal
// of McMahan et al., "Ad Click Prediction: a View from the Trenches" (KDD 2013), with rates by
// coordinate that fall with the root of n, and TensorFlow's l2Shrinkage; its weights are exactly 0
// where |z| <= l1. It has no weightDecay.
// INVALID_ARGUMENT names the field: "optimizer.rho: 1.5, expected a number from 0 to below 1". A
// parameter of another rule is refused unless it is zero.
StatusOr<std::unique_ptr<Optimizer>> makeOptimizer(const v1::OptimizerSpec& spec);

}  // namespace trainyard::runtime
