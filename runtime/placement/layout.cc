#include "runtime/placement/layout.h"

#include <algorithm>

namespace trainyard::runtime {
namespace {

// Who of those that have the part keeps its replica for now; -1: nobody else has it.
int standIn(const LayoutStart& start, std::uint32_t part, int holder) {
  std::set<int> candidates = start.members;
  candidates.insert(kWorkerKeeper);
  for (const int server : candidates) {
    if (server != holder && start.has(server, part)) return server;
  }
  return -1;
}

}  // namespace

bool Layout::plain() const {
  if (!copies.empty() || map.servers != target.servers) return false;
  for (std::size_t id = 0; id < replicas.size(); ++id) {
    if (replicas[id] != replicaServer(map.servers, map.ps[id])) return false;
  }
  return true;
}

Layout settledLayout(const std::vector<ChunkLoad>& chunks, const ChunkMap& before,
                     const std::set<int>& servers, bool replicated) {
  Layout layout;
  layout.map = layout.target = moveChunks(chunks, before, servers);
  for (const int holder : layout.map.ps) {
    if (replicated) layout.replicas.push_back(replicaServer(servers, holder));
  }
  return layout;
}

Layout layoutFrom(const LayoutStart& start, const std::vector<ChunkLoad>& chunks,
                  const ChunkMap& before, const std::set<int>& servers, bool replicated) {
  Layout layout = settledLayout(chunks, before, servers, replicated);
  layout.map.servers = start.members;
  for (std::uint32_t id = 0; id < chunks.size(); ++id) {
    if (!chunks[id].rows) continue;
    int& holder = layout.map.ps[id];
    const int wanted = holder;
    const int giver = start.givers[id];
    if (!start.has(wanted, id) && start.members.contains(giver)) {
      holder = giver;
      layout.copies[wanted].insert(id);
    }
    if (!replicated) continue;
    const int keeper = layout.replicas[id];
    if (keeper != holder && start.has(keeper, id)) continue;
    layout.replicas[id] = standIn(start, id, holder);
    if (keeper != holder) layout.copies[keeper].insert(id);
  }
  return layout;
}

}  // namespace trainyard::runtime
