// Forms a group of ranks: connections, their devices or shared memory between those on one machine,
// and the check that all train the same tensors.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "runtime/collective/group_device.h"
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
  // Of this rank.
  GroupDevice device = {};
  // Called with the connections before they are used; again where all connect a second time.
  std::function<void(const transport::TcpMesh&)> connected = {};
};

struct Group {
  std::unique_ptr<Collective> collective;
  // Null over TCP, and with `device`. Arrays that are allocated in it are reduced where they are.
  std::shared_ptr<transport::SharedArena> arena;
  // For arrays in the memory of the ranks' devices; null where they are not used. It and
  // `collective` belong to one thread at a time, together, and after a failure of either both are
  // of no more use.
  std::unique_ptr<Collective> device;
};

// All ranks call it with the same addresses, epoch and plan. Ranks whose addresses have one host
// share memory: all of them, or those of each host, unless `deterministic` (then TCP); where it
// cannot be had TCP, which is said once, by rank 0, with the reason. Ranks that all have a device
// of their own use these instead, unless `deterministic`, `wire`, or encrypted between several
// hosts; where they cannot be joined all connect a second time and do without, which rank 0 says.
// Errors as of connectMesh() and comparePlans(). What `device` refers to outlives the group.
StatusOr<Group> joinGroup(const transport::TcpListener& listener, const GroupOptions& options,
                          std::span<const PlannedTensor> plan);

}  // namespace trainyard::runtime::collective
