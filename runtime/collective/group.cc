#include "runtime/collective/group.h"

#include <utility>

#include "base/core/log.h"
#include "fmt/format.h"
#include "runtime/collective/hierarchical_collective.h"
#include "runtime/collective/hosts.h"
#include "runtime/collective/internal/join_devices.h"
#include "runtime/collective/internal/shared_transport.h"
#include "runtime/collective/shared_collective.h"

namespace trainyard::runtime::collective {
namespace {

// Whether ranks share memory, and which. All ranks come to the same.
bool shares(const GroupOptions& options, const Hosts& hosts) {
  if (!options.share_memory || options.collective.wire || options.mesh.addresses.size() < 2) {
    return false;
  }
  // Between hosts nothing is added in the order of ranks.
  return hosts.count() == 1 || (hosts.worthwhile() && !options.collective.deterministic);
}

// Null where it cannot be had, and the transport goes on.
StatusOr<std::shared_ptr<transport::SharedArena>> shareMemory(transport::Transport& tcp,
                                                              const GroupOptions& options,
                                                              const Hosts& hosts) {
  transport::ArenaOptions arena = options.arena;
  // A window of a quarter of what is there is at least windowBytes() of what is asked for.
  arena.bytes += 2 * windowBytes(arena.bytes) + kTinyPlacesBytes;
  auto created = transport::SharedArena::create(tcp, arena, hosts.local());
  if (created.ok()) {
    if (hosts.count() > 1 && options.mesh.rank == 0) {
      TY_INFO("gradients go through the memory of each of {} hosts, and over TCP between them",
              hosts.count());
    }
    return std::shared_ptr<transport::SharedArena>(std::move(*created));
  }
  if (created.status().code() != absl::StatusCode::kUnavailable || !tcp.check().ok()) {
    return created.status();
  }
  if (options.mesh.rank == 0) {
    TY_WARN("gradients go over TCP: {}", std::string(created.status().message()));
  }
  return std::shared_ptr<transport::SharedArena>();
}

StatusOr<std::unique_ptr<Collective>> makeCollective(std::unique_ptr<transport::Transport> tcp,
                                                     std::shared_ptr<transport::SharedArena> arena,
                                                     const Hosts& hosts,
                                                     const CollectiveOptions& options) {
  if (arena == nullptr) return makeMessageCollective(std::move(tcp), options);
  if (hosts.count() == 1) return makeSharedCollective(std::move(tcp), std::move(arena), options);
  return makeHierarchicalCollective(std::move(tcp), std::move(arena), hosts, options);
}

StatusOr<std::shared_ptr<transport::Transport>> connect(const transport::TcpListener& listener,
                                                        const GroupOptions& options) {
  TY_ASSIGN_OR_RETURN(transport::TcpMesh mesh, connectMesh(listener, options.mesh));
  if (options.connected) options.connected(mesh);
  return std::make_shared<transport::TcpTransport>(std::move(mesh), options.tcp);
}

// Null where the group does without devices. `tcp` is another one then, where the ranks have tried.
StatusOr<std::unique_ptr<Collective>> joinDevices(const transport::TcpListener& listener,
                                                  const GroupOptions& options,
                                                  std::shared_ptr<transport::Transport>& tcp) {
  auto device = internal::joinDevices(tcp, options);
  // Whoever reports something else has seen that a rank is lost, or is told to give up.
  if (!absl::IsAborted(device.status())) return device;
  if (options.mesh.rank == 0) {
    TY_WARN("gradients of GPUs go through the host's memory: {}",
            std::string(device.status().message()));
  }
  tcp.reset();  // when the others have heard it
  auto again = connect(listener, options);
  if (!again.ok()) {
    return annotate(again.status(),
                    fmt::format("connecting again ({})", std::string(device.status().message())));
  }
  tcp = std::move(*again);
  return nullptr;
}

}  // namespace

StatusOr<Group> joinGroup(const transport::TcpListener& listener, const GroupOptions& options,
                          std::span<const PlannedTensor> plan) {
  TY_ASSIGN_OR_RETURN(auto tcp, connect(listener, options));
  const Hosts hosts = hostsOf(options.mesh.addresses, options.mesh.rank);
  Group group;
  TY_ASSIGN_OR_RETURN(group.device, joinDevices(listener, options, tcp));
  if (!group.device && shares(options, hosts)) {
    TY_ASSIGN_OR_RETURN(group.arena, shareMemory(*tcp, options, hosts));
  }
  TY_ASSIGN_OR_RETURN(group.collective,
                      makeCollective(std::make_unique<internal::SharedTransport>(std::move(tcp)),
                                     group.arena, hosts, options.collective));
  TY_RETURN_IF_ERROR(comparePlans(*group.collective, plan));
  return group;
}

}  // namespace trainyard::runtime::collective
