#include "runtime/collective/group.h"

#include <algorithm>

#include "base/core/log.h"
#include "runtime/collective/shared_collective.h"

namespace trainyard::runtime::collective {
namespace {

bool onOneMachine(const std::vector<transport::TcpAddress>& addresses) {
  return std::all_of(addresses.begin(), addresses.end(),
                     [&](const auto& address) { return address.host == addresses[0].host; });
}

}  // namespace

StatusOr<Group> joinGroup(const transport::TcpListener& listener, const GroupOptions& options,
                          std::span<const PlannedTensor> plan) {
  TY_ASSIGN_OR_RETURN(transport::TcpMesh mesh, connectMesh(listener, options.mesh));
  std::unique_ptr<transport::Transport> tcp =
      std::make_unique<transport::TcpTransport>(std::move(mesh), options.tcp);
  Group group;
  const bool shares = options.share_memory && !options.collective.wire &&
                      options.mesh.addresses.size() > 1 && onOneMachine(options.mesh.addresses);
  if (shares) {
    transport::ArenaOptions arena = options.arena;
    // A window of a quarter of what is there is at least windowBytes() of what is asked for.
    arena.bytes += 2 * windowBytes(arena.bytes);
    auto created = transport::SharedArena::create(*tcp, arena);
    if (created.ok()) {
      group.arena = std::move(*created);
    } else if (created.status().code() != absl::StatusCode::kUnavailable || !tcp->check().ok()) {
      return created.status();
    } else if (options.mesh.rank == 0) {
      TY_WARN("gradients go over TCP: {}", std::string(created.status().message()));
    }
  }
  if (group.arena) {
    TY_ASSIGN_OR_RETURN(group.collective,
                        makeSharedCollective(std::move(tcp), group.arena, options.collective));
  } else {
    group.collective = makeMessageCollective(std::move(tcp), options.collective);
  }
  TY_RETURN_IF_ERROR(comparePlans(*group.collective, plan));
  return group;
}

}  // namespace trainyard::runtime::collective
