// A model that computes nothing and only takes time, for measuring what surrounds the computing:
// placement, links, slow workers. Its processes need no processor while they "compute", so a whole
// cluster of them fits on one machine. No torch.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "base/core/clock.h"
#include "runtime/model/model.h"

namespace trainyard::runtime {

// When a variable's gradient leaves, as a share of the step: 0 its begin, 1 its end.
struct GradientMoment {
  int variable = 0;
  double at = 0;
};

// The order and the moments of the backward pass of a built-in model, `variables` its trainable
// variables (kernel and bias of one layer after the other). The forward pass takes the first third
// of the step, as a layer's backward pass is two products of the size of its forward one. The rest
// is shared out over the layers, last layer first, in proportion to their multiply-adds: height x
// width of the output x elements of the kernel (dense: elements), twice, because the gradients of
// kernel and input cost as much each; once for the first layer, whose input is data. Pools and
// activations cost nothing. A layer's bias leaves where its share begins, its kernel where it ends.
// Ascending; the last moment is 1.
std::vector<GradientMoment> backwardMoments(const v1::ModelSpec& spec,
                                            const std::vector<Variable>& variables,
                                            const std::array<int, 3>& shape);

// What a simulated model takes its time by.
struct StepTimer {
  Duration step{};
  std::function<TimePoint()> now;
  std::function<void(TimePoint)> wait_until;
};

// Every gradient's mean is this, in every element.
inline constexpr float kSimulatedGradient = 1.0f / 1024;

// Weights begin as zeros and are never read. A training pass lasts `timer.step` from its call,
// whatever the sink takes of it; its loss is that of a uniform guess, ln(classes) for each sample.
// An evaluation takes no time and always answers class 0. One buffer of the largest variable's size
// serves all gradients.
std::unique_ptr<Model> makeSimulatedModel(std::vector<Variable> variables,
                                          std::vector<GradientMoment> moments, int classes,
                                          StepTimer timer);

}  // namespace trainyard::runtime
