#include "runtime/ring/replica.h"

#include <algorithm>
#include <utility>

#include "base/core/check.h"
#include "runtime/tensor/kernels.h"
#include "runtime/tensor/square_sum.h"

namespace trainyard::runtime::ring {
namespace {

// Elements that are gone through at a time: they stay in the L1 cache.
constexpr std::size_t kBlock = 2048;

std::span<float> blockOf(std::span<float> values, std::size_t begin) {
  return values.subspan(begin, std::min(kBlock, values.size() - begin));
}

std::span<const float> partOf(std::span<const float> values, const Segment& segment) {
  return values.subspan(static_cast<std::size_t>(segment.begin),
                        static_cast<std::size_t>(segment.end - segment.begin));
}

}  // namespace

Replica::Replica(const Placement& placement, std::vector<std::span<float>> weights,
                 const Optimizer& optimizer, LearningRate learning_rate, double clip_norm)
    : placement_(placement),
      weights_(std::move(weights)),
      optimizer_(optimizer),
      learning_rate_(learning_rate),
      clip_norm_(clip_norm),
      model_variable_(placement.variables.size(), -1),
      slots_(optimizer.slots().size()) {
  int next = 0;
  for (std::size_t v = 0; v < placement.variables.size(); ++v) {
    if (placement.variables[v].trainable) model_variable_[v] = next++;
  }
  TY_CHECK(next == static_cast<int>(weights_.size()),
           "placement and model have the same variables");
  for (std::size_t s = 0; s < slots_.size(); ++s) {
    for (const std::span<float> values : weights_)
      slots_[s].emplace_back(values.size(), optimizer.initialSlot(s));
  }
}

void Replica::load(std::uint32_t chunk, std::span<const float> weights,
                   const std::vector<std::vector<float>>& slots) {
  std::size_t at = 0;
  for (const Segment& segment : placement_.chunks[chunk].segments) {
    const auto variable = static_cast<std::size_t>(variableOf(segment));
    const auto length = static_cast<std::size_t>(segment.end - segment.begin);
    const auto copy = [&](std::span<const float> from, std::span<float> into) {
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(at), length,
                  into.begin() + segment.begin);
    };
    copy(weights, weights_[variable]);
    for (std::size_t s = 0; s < slots_.size(); ++s) copy(slots[s], slots_[s][variable]);
    at += length;
  }
}

std::vector<std::span<float>> Replica::arrays() {
  std::vector<std::span<float>> arrays = weights_;
  for (auto& slot : slots_) {
    for (std::vector<float>& values : slot) arrays.emplace_back(values);
  }
  return arrays;
}

Snapshot Replica::snapshot(std::int64_t epoch, std::int64_t version) const {
  Snapshot snapshot;
  snapshot.epoch = epoch;
  snapshot.version = version;
  for (const Chunk& chunk : placement_.chunks) {
    const auto elements = static_cast<std::size_t>(chunk.elements);
    std::pmr::vector<float> weights;
    weights.reserve(elements);
    Snapshot::ChunkCopy copy;
    copy.chunk = chunk.id;
    SlotArrays::Arrays slots(slots_.size());
    for (std::vector<float>& slot : slots) slot.reserve(elements);
    for (const Segment& segment : chunk.segments) {
      const auto variable = static_cast<std::size_t>(variableOf(segment));
      const std::span<const float> values = partOf(weights_[variable], segment);
      weights.insert(weights.end(), values.begin(), values.end());
      for (std::size_t s = 0; s < slots_.size(); ++s) {
        const std::span<const float> slot = partOf(slots_[s][variable], segment);
        slots[s].insert(slots[s].end(), slot.begin(), slot.end());
      }
    }
    copy.slots = std::move(slots);
    copy.weights = std::make_shared<const std::pmr::vector<float>>(std::move(weights));
    snapshot.chunks.push_back(std::move(copy));
  }
  return snapshot;
}

Replica::Means Replica::average(const std::vector<std::span<float>>& sums, std::int64_t samples,
                                const std::vector<std::span<float>>& means) const {
  Means found;
  SquareSum squares;
  for (std::size_t v = 0; v < sums.size(); ++v) {
    for (std::size_t at = 0; at < sums[v].size(); at += kBlock) {
      const std::span<const float> sum = blockOf(sums[v], at);
      const std::span<float> mean = blockOf(means[v], at);
      if (sum.data() != mean.data()) std::ranges::copy(sum, mean.begin());
      divideFloats(mean, static_cast<float>(samples));
      if (!allFinite(mean)) {
        found.not_finite = static_cast<int>(v);
        return found;
      }
      if (clip_norm_ > 0) squares.add(mean);
    }
  }
  if (!(clip_norm_ > 0)) return found;
  found.norm = squares.norm();
  if (*found.norm <= clip_norm_) return found;
  const auto scale = static_cast<float>(clip_norm_ / *found.norm);
  for (const std::span<float> values : means) scaleFloats(values, scale);
  return found;
}

void Replica::update(std::int64_t step, const std::vector<std::span<float>>& means) {
  const UpdateContext context{step, learning_rate_.at(step)};
  std::vector<std::span<float>> slots(slots_.size());
  for (std::size_t v = 0; v < weights_.size(); ++v) {
    const std::span<float> all = weights_[v];
    for (std::size_t at = 0; at < all.size(); at += kBlock) {
      for (std::size_t s = 0; s < slots.size(); ++s) slots[s] = blockOf(slots_[s][v], at);
      const std::span<float> weights = blockOf(all, at);
      optimizer_.apply(context, weights, blockOf(means[v], at), weights, slots);
    }
  }
}

}  // namespace trainyard::runtime::ring
