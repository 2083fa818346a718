#include "tests/runtime/collective/ranks.h"

#include <thread>

#include "runtime/collective/shared_collective.h"
#include "runtime/transport/in_process.h"
#include "runtime/transport/tcp_transport.h"

namespace trainyard::runtime::collective::testing {
namespace {

using transport::InProcessGroup;
using transport::MeshOptions;
using transport::TcpListener;
using transport::TcpTransport;

StatusOr<std::unique_ptr<transport::Transport>> connect(const TcpListener& listener,
                                                        const MeshOptions& options) {
  TY_ASSIGN_OR_RETURN(transport::TcpMesh mesh, connectMesh(listener, options));
  return std::make_unique<TcpTransport>(std::move(mesh), transport::TcpOptions());
}

// Over TCP, with shared memory where asked for: a small arena, so that windows are full soon.
StatusOr<std::unique_ptr<Collective>> join(Over over, const TcpListener& listener,
                                           const MeshOptions& mesh,
                                           const CollectiveOptions& options) {
  TY_ASSIGN_OR_RETURN(std::unique_ptr<transport::Transport> transport, connect(listener, mesh));
  if (over == Over::kTcp) return makeMessageCollective(std::move(transport), options);
  transport::ArenaOptions arena_options;
  arena_options.bytes = 1 << 20;
  TY_ASSIGN_OR_RETURN(std::shared_ptr<transport::SharedArena> arena,
                      transport::SharedArena::create(*transport, arena_options));
  return makeSharedCollective(std::move(transport), std::move(arena), options);
}

}  // namespace

std::string nameOf(const Group& group) {
  const char* over = group.over == Over::kTcp      ? "Tcp"
                     : group.over == Over::kShared ? "Shared"
                                                   : "InProcess";
  return over + std::to_string(group.ranks);
}

std::vector<Group> groups() {
  std::vector<Group> all;
  for (const int ranks : {1, 2, 3, 4, 5, 8}) all.push_back({Over::kInProcess, ranks});
  for (const int ranks : {2, 3, 4, 7}) all.push_back({Over::kTcp, ranks});
  for (const int ranks : {2, 3, 4, 5}) all.push_back({Over::kShared, ranks});
  return all;
}

std::vector<Status> runRanks(const Group& group, const CollectiveOptions& options,
                             const std::function<Status(Collective&)>& act) {
  std::vector<Status> results(static_cast<std::size_t>(group.ranks));
  const auto hub = InProcessGroup::create(group.ranks);
  std::vector<TcpListener> listeners;
  MeshOptions mesh;
  mesh.token = "token";
  mesh.epoch = 7;
  for (int r = 0; group.over != Over::kInProcess && r < group.ranks; ++r) {
    auto listener = TcpListener::listen("127.0.0.1", 0);
    if (!listener.ok()) return {listener.status()};
    mesh.addresses.push_back({"127.0.0.1", listener->port()});
    listeners.push_back(std::move(*listener));
  }
  std::vector<std::thread> threads;
  for (int r = 0; r < group.ranks; ++r) {
    threads.emplace_back([&, r] {
      const auto self = static_cast<std::size_t>(r);
      MeshOptions own = mesh;
      own.rank = r;
      auto collective =
          group.over == Over::kInProcess
              ? StatusOr<std::unique_ptr<Collective>>(makeMessageCollective(hub->join(r), options))
              : join(group.over, listeners[self], own, options);
      results[self] = collective.ok() ? act(**collective) : collective.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

}  // namespace trainyard::runtime::collective::testing
