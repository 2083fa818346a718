// Collective operations of ranks that share memory (transport/shared_arena.h): every rank reads the
// others' arrays where they are, so that an all-reduce is one pass over 1/P of all arrays.
//
// Arrays that lie in the arena (SharedArena::allocate) are used in place; when any rank's does not,
// all go through a window of the arena in pieces, at the price of two copies.
//
//   all-reduce       2 meetings; a rank reads and writes (P - 1)/P D bytes of the others' memory
//     up to 2 KiB    1 meeting; reads (P - 1) D
//   reduce-scatter   2 meetings; reads (P - 1)/P D
//   all-gather       2 meetings; reads what the others bring
//   broadcast        2 meetings; all but the root read D
//   all-to-all       2 meetings; reads what the others have for it
//   barrier          1 meeting
// With a window 1 meeting and 2 for each piece.
//
// Everything is put together in the order of ranks, as with CollectiveOptions::deterministic.
#pragma once

#include <memory>

#include "runtime/collective/collective.h"
#include "runtime/collective/message_collective.h"
#include "runtime/transport/shared_arena.h"

namespace trainyard::runtime::collective {

// `arena` was made over `transport`. All ranks have allocated the same of it so far: windows lie at
// the same place in every part. Of the options only the timeout counts: the order is always that of
// ranks, and nothing travels. RESOURCE_EXHAUSTED when the arena has no room for a window.
StatusOr<std::unique_ptr<Collective>> makeSharedCollective(
    std::unique_ptr<transport::Transport> transport, std::shared_ptr<transport::SharedArena> arena,
    const CollectiveOptions& options);

// Of each rank's part that the window takes, and what tiny arrays take beside it.
std::size_t windowBytes(std::size_t arena_bytes);
inline constexpr std::size_t kTinyPlacesBytes = 8192;

}  // namespace trainyard::runtime::collective
