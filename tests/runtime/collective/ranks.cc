#include "tests/runtime/collective/ranks.h"

#include <thread>

#include "runtime/collective/shared_collective.h"
#include "runtime/stream/tls_stream.h"
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
  if (over == Over::kTcp || over == Over::kTls)
    return makeMessageCollective(std::move(transport), options);
  transport::ArenaOptions arena_options;
  arena_options.bytes = 1 << 20;
  TY_ASSIGN_OR_RETURN(std::shared_ptr<transport::SharedArena> arena,
                      transport::SharedArena::create(*transport, arena_options));
  return makeSharedCollective(std::move(transport), std::move(arena), options);
}

}  // namespace

std::string nameOf(const Group& group) {
  const char* over = group.over == Over::kTcp      ? "Tcp"
                     : group.over == Over::kTls    ? "Tls"
                     : group.over == Over::kShared ? "Shared"
                                                   : "InProcess";
  if (group.over != Over::kHosts) return over + std::to_string(group.ranks);
  std::string name = "Hosts";
  for (const int host : group.hosts) name += std::to_string(host);
  return name;
}

Group onHosts(const std::vector<int>& hosts) {
  return {Over::kHosts, static_cast<int>(hosts.size()), hosts};
}

std::vector<Group> groups() {
  std::vector<Group> all;
  for (const int ranks : {1, 2, 3, 4, 5, 8}) all.push_back({Over::kInProcess, ranks});
  for (const int ranks : {2, 3, 4, 7}) all.push_back({Over::kTcp, ranks});
  for (const int ranks : {2, 5}) all.push_back({Over::kTls, ranks});
  for (const int ranks : {2, 3, 4, 5}) all.push_back({Over::kShared, ranks});
  // Of equal size, of unequal size, mixed, and more of them.
  for (const std::vector<int>& hosts : std::vector<std::vector<int>>{
           {0, 0, 1, 1}, {0, 0, 0, 1}, {0, 1, 0, 1, 1}, {0, 0, 1, 1, 2, 2}}) {
    all.push_back(onHosts(hosts));
  }
  return all;
}

std::vector<Status> runRanks(const Group& group, const CollectiveOptions& options,
                             const std::function<Status(Collective&)>& act) {
  if (group.over == Over::kHosts) {
    GroupOptions small;
    small.collective = options;
    small.arena.bytes = 1 << 20;
    return runHosts(group.hosts, small,
                    [&](collective::Group& g, int) { return act(*g.collective); });
  }
  std::vector<Status> results(static_cast<std::size_t>(group.ranks));
  const auto hub = InProcessGroup::create(group.ranks);
  std::vector<TcpListener> listeners;
  MeshOptions mesh;
  mesh.token = "token";
  mesh.epoch = 7;
  if (group.over == Over::kTls) {
    mesh.encryption = *stream::TlsContext::make(deriveRuntimeKeys(mesh.token).control);
  }
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

std::vector<Status> runHosts(const std::vector<int>& hosts, const GroupOptions& options,
                             const std::function<Status(collective::Group&, int rank)>& act) {
  std::vector<Status> results(hosts.size());
  std::vector<TcpListener> listeners;
  MeshOptions mesh;
  mesh.token = "token";
  mesh.epoch = 7;
  for (const int host : hosts) {
    const std::string address = "127.0.0." + std::to_string(host + 1);
    auto listener = TcpListener::listen(address, 0);
    if (!listener.ok()) return {listener.status()};
    mesh.addresses.push_back({address, listener->port()});
    listeners.push_back(std::move(*listener));
  }
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    threads.emplace_back([&, r] {
      GroupOptions own = options;
      own.mesh = mesh;
      own.mesh.rank = static_cast<int>(r);
      auto group = joinGroup(listeners[r], own, {});
      results[r] = group.ok() ? act(*group, own.mesh.rank) : group.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

}  // namespace trainyard::runtime::collective::testing
