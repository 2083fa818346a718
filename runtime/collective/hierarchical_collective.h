// Collective operations of several hosts with several ranks each.
//
// An all-reduce is done in three steps, so that only 1/L of what a rank has passes its link (L: the
// ranks of the smallest host), and all links of a host are used:
//
//   1. in each host's memory, each of L ranks puts its slice of all local arrays together;
//   2. over the transport, ranks of the same place on all hosts all-reduce their slice (ring, or
//      halving and doubling, by its size);
//   3. each of the L writes the result into all local arrays.
//
// A host with more than L ranks leaves the exchange to its first L; with L = 1 these are leaders.
// Arrays go through it in pieces of the arena's window; those that lie in the arena are used where
// they are. The order of addition is not that of ranks, but the same in every run.
//
// The other operations go over the transport, after a meeting in shared memory. Every operation
// also says to the next host what it is (a message without payload), so that ranks of different
// hosts that are in different operations find out.
#pragma once

#include <memory>

#include "runtime/collective/hosts.h"
#include "runtime/collective/message_collective.h"
#include "runtime/transport/shared_arena.h"

namespace trainyard::runtime::collective {

// `arena` was made over `transport` with the ranks of this host, of the same size on all ranks; all
// have allocated the same of it so far. RESOURCE_EXHAUSTED when it has no room for a window.
// Preconditions: `options` are neither deterministic nor with 16-bit floats on the wire.
StatusOr<std::unique_ptr<Collective>> makeHierarchicalCollective(
    std::unique_ptr<transport::Transport> transport, std::shared_ptr<transport::SharedArena> arena,
    const Hosts& hosts, const CollectiveOptions& options);

}  // namespace trainyard::runtime::collective
