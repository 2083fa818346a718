// What every implementation checks and derives of its arguments.
#pragma once

#include <cstdint>
#include <span>

#include "base/core/status.h"
#include "runtime/collective/collective.h"
#include "runtime/transport/message.h"

namespace trainyard::runtime::collective::internal {

ReduceOp opOf(Reduction reduction);
// The `number`-th operation of a group, on `array`; what travels is of its type.
transport::Operation operationOf(std::uint64_t number, transport::Kind kind, const Array& array,
                                 Reduction reduction, transport::Algorithm algorithm);
// What the sum is divided by.
std::int64_t divisorOf(Reduction reduction, int ranks);

// INVALID_ARGUMENT, on this rank alone: nothing has been sent.
Status checkCounts(std::span<const std::int64_t> counts, int ranks, std::int64_t elements);
Status checkRoot(int root, int ranks);
Status checkAllToAll(const Array& send, std::span<const std::int64_t> send_counts,
                     const Array& receive, std::span<const std::int64_t> receive_counts, int rank,
                     int ranks);

}  // namespace trainyard::runtime::collective::internal
