// Forms a group of ranks: connections, shared memory between those on one machine, and the check
// that all train the same tensors.
#pragma once

#include <memory>
#include <vector>

#include "runtime/collective/message_collective.h"
#include "runtime/collective/plan.h"
#include "runtime/transport/shared_arena.h"
#include "runtime/transport/tcp_transport.h"

namespace trainyard::runtime::collective {

struct GroupOptions {
  transport::MeshOptions mesh;
  transport::TcpOptions tcp;
  // The same on all ranks. With `wire` arrays travel as messages, also on one machine.
  CollectiveOptions collective;
  bool share_memory = true;
  // For the ranks' arrays, besides the window; see SharedArena.
  transport::ArenaOptions arena;
};

struct Group {
  std::unique_ptr<Collective> collective;
  // Null over TCP. Arrays that are allocated in it are reduced where they are.
  std::shared_ptr<transport::SharedArena> arena;
};

// All ranks call it with the same addresses, epoch and plan. Ranks whose addresses have one host
// share memory: all of them, or those of each host, unless `deterministic` (then TCP); where it
// cannot be had TCP, which is said once, by rank 0, with the reason. Errors as of connectMesh() and
// comparePlans().
StatusOr<Group> joinGroup(const transport::TcpListener& listener, const GroupOptions& options,
                          std::span<const PlannedTensor> plan);

}  // namespace trainyard::runtime::collective
