// The whole state of a model in one process, weights and the optimizer's slots, and the arithmetic
// of a step. Every rank holds one; from the same sums each computes the same next version, and the
// bits are those of a parameter server that was given the same sums.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/checkpoint/snapshot.h"
#include "runtime/optimizer/optimizer.h"
#include "runtime/placement/placement.h"

namespace trainyard::runtime::ring {

// Used by one thread.
class Replica {
 public:
  // `weights` are the model's, in the order of its variables: placement.variables without what is
  // not trainable. The placement's chunks are those of one server. All must outlive this.
  Replica(const Placement& placement, std::vector<std::span<float>> weights,
          const Optimizer& optimizer, LearningRate learning_rate, double clip_norm);

  // Takes a chunk that was read (LoadChunk).
  void load(std::uint32_t chunk, std::span<const float> weights,
            const std::vector<std::vector<float>>& slots);
  // Weights, then slots: what ranks give each other, in the same order on all of them.
  std::vector<std::span<float>> arrays();
  Snapshot snapshot(std::int64_t epoch, std::int64_t version) const;
  std::size_t variables() const { return weights_.size(); }

  // Of `sums` by variable, over `samples` samples, makes means, which with clipping are scaled.
  // Both are the same arrays, or none of one is one of the other. The norm before clipping, where
  // there is clipping.
  struct Means {
    std::optional<int> not_finite;  // a variable; the state is untouched, and must stay so
    std::optional<double> norm;
  };
  Means average(const std::vector<std::span<float>>& sums, std::int64_t samples,
                const std::vector<std::span<float>>& means) const;
  // Means of step `step` make its version step + 1.
  void update(std::int64_t step, const std::vector<std::span<float>>& means);

 private:
  int variableOf(const Segment& segment) const {
    return model_variable_[static_cast<std::size_t>(segment.variable)];
  }

  const Placement& placement_;
  const std::vector<std::span<float>> weights_;
  const Optimizer& optimizer_;
  const LearningRate learning_rate_;
  const double clip_norm_;
  std::vector<int> model_variable_;                     // by the placement's variable; -1: none
  std::vector<std::vector<std::vector<float>>> slots_;  // by slot and variable
};

}  // namespace trainyard::runtime::ring
