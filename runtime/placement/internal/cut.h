// How strategies cut one variable, and all of them together. Pure.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/core/status.h"
#include "runtime/placement/placement.h"

namespace trainyard::runtime::internal {

// TensorFlow's partitioners: into how many slabs along which axis. `field` is the message's path,
// for errors.
struct Cutter {
  enum class Kind { kWhole, kFixedSize, kMinMax, kMaxBytes } kind = Kind::kWhole;
  int axis = 0;
  std::int64_t shards = 1;  // kFixedSize, kMinMax: at most so many
  std::int64_t bytes = 1;   // kMinMax: at least, kMaxBytes: at most so many per slab

  bool hasAxis(const Variable& variable) const;
  // 1 for what stays whole: no such axis, or not trainable.
  std::int64_t slabs(const Variable& variable) const;
};
StatusOr<Cutter> fixedSizeCutter(const v1::FixedSize& spec, int num_ps, std::string_view field);
StatusOr<Cutter> minMaxCutter(const v1::MinMax& spec, int num_ps, std::string_view field);
StatusOr<Cutter> maxBytesCutter(const v1::MaxBytes& spec, std::string_view field);

// The slabs of `variable` (number `index`), their ps not yet set.
std::vector<Part> cutVariable(const Cutter& cutter, int index, const Variable& variable);

// `chosen` variables' concatenation in num_ps equal ranges; parts in order, their ps set.
std::vector<Part> cutBalanced(const std::vector<Variable>& variables,
                              const std::vector<int>& chosen, int num_ps);

// The chunks of placement.parts, with ids.
std::vector<Chunk> makeChunks(const Placement& placement, int max_ps);

}  // namespace trainyard::runtime::internal
