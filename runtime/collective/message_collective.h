// Collective operations made of messages: over threads of one process or over TCP.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/collective/collective.h"

namespace trainyard::runtime::collective {

// The same on all ranks.
struct CollectiveOptions {
  Duration timeout = std::chrono::seconds(60);  // of one operation
  // All-reduce and reduce-scatter put the ranks' arrays together in the order of ranks, so that the
  // bits are those of a parameter server that adds in that order, and do not depend on the size of
  // the group's arrays. Costs the memory of one more array.
  bool deterministic = false;
  // All-reduce of float32 travels as float16 or bfloat16: half the bytes. Each rank's array is
  // rounded once, they are added in float32 in the order of ranks, and the result is rounded once.
  std::optional<ElementType> wire = {};
  // Instead of the one that fits the size (cost.h); for tests and benches.
  std::optional<transport::Algorithm> algorithm = {};
};

// Takes the transport for itself. Precondition: `options.wire` is a 16-bit float.
std::unique_ptr<Collective> makeMessageCollective(std::unique_ptr<transport::Transport> transport,
                                                  const CollectiveOptions& options);

}  // namespace trainyard::runtime::collective
