#include "runtime/placement/moves.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "base/core/check.h"
#include "runtime/catalog/catalog.h"
#include "runtime/catalog/table_parts.h"

namespace trainyard::runtime {
namespace {

// Ids in an order in which any first few of them are spread over all: by their bits, the lowest
// first.
std::uint32_t spreadKey(std::size_t id) {
  std::uint32_t key = 0;
  for (int bit = 0; bit < 32; ++bit) key |= ((id >> bit) & 1u) << (31 - bit);
  return key;
}

// Of the chunks, or of the parts of tables.
class Balancer {
 public:
  Balancer(const std::vector<ChunkLoad>& chunks, bool rows, std::vector<int>& ps,
           const std::set<int>& servers)
      : chunks_(chunks), rows_(rows), ps_(ps) {
    for (const int server : servers) load_[server] = 0;
    for (std::size_t id = 0; id < chunks_.size(); ++id) {
      if (!isOurs(id)) continue;
      total_ += weightOf(id);
      largest_ = std::max(largest_, weightOf(id));
      const auto home = load_.find(ps_[id]);
      if (home == load_.end()) {
        orphans_.push_back(id);
      } else {
        home->second += weightOf(id);
      }
    }
  }

  void run() {
    adoptOrphans();
    while (moveOne()) {
    }
  }

 private:
  bool isOurs(std::size_t id) const { return chunks_[id].rows == rows_; }
  std::int64_t weightOf(std::size_t id) const { return rows_ ? 1 : chunks_[id].bytes; }
  int leastLoaded() const {
    return std::min_element(load_.begin(), load_.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; })
        ->first;
  }

  void adoptOrphans() {
    std::sort(orphans_.begin(), orphans_.end(), [this](std::size_t a, std::size_t b) {
      return std::tuple(-weightOf(a), spreadKey(a)) < std::tuple(-weightOf(b), spreadKey(b));
    });
    for (const std::size_t id : orphans_) {
      ps_[id] = leastLoaded();
      load_[ps_[id]] += weightOf(id);
    }
  }

  // From the fullest server that has something to give. Each move makes the loads more even, so
  // they end.
  bool moveOne() {
    const std::int64_t enough = total_ / static_cast<std::int64_t>(load_.size()) + largest_ / 2;
    std::vector<std::pair<std::int64_t, int>> fullest;
    for (const auto& [server, load] : load_) {
      if (load > enough) fullest.emplace_back(-load, server);
    }
    std::sort(fullest.begin(), fullest.end());
    const int to = leastLoaded();
    for (const auto& [load, from] : fullest) {
      const std::size_t id = best(from, to);
      if (id == chunks_.size()) continue;
      ps_[id] = to;
      load_[from] -= weightOf(id);
      load_[to] += weightOf(id);
      return true;
    }
    return false;
  }

  // The chunk whose move leaves the fuller of the two emptiest; chunks_.size(): none makes it
  // emptier.
  std::size_t best(int from, int to) const {
    const std::int64_t most = load_.at(from);
    std::size_t found = chunks_.size();
    std::tuple<std::int64_t, std::uint32_t> order;
    for (std::size_t id = 0; id < chunks_.size(); ++id) {
      if (!isOurs(id) || ps_[id] != from || chunks_[id].pinned) continue;
      const std::int64_t weight = weightOf(id);
      const std::int64_t fuller = std::max(most - weight, load_.at(to) + weight);
      if (fuller >= most) continue;
      const std::tuple candidate(fuller, spreadKey(id));
      if (found != chunks_.size() && order <= candidate) continue;
      found = id;
      order = candidate;
    }
    return found;
  }

  const std::vector<ChunkLoad>& chunks_;
  const bool rows_;
  std::vector<int>& ps_;
  std::map<int, std::int64_t> load_;  // by server
  std::vector<std::size_t> orphans_;
  std::int64_t total_ = 0;
  std::int64_t largest_ = 0;
};

}  // namespace

std::vector<ChunkLoad> chunkLoads(const Placement& placement, bool tables) {
  std::vector<ChunkLoad> loads;
  for (const Chunk& chunk : placement.chunks)
    loads.push_back({chunk.elements * 4, chunk.ps, chunk.pinned});
  for (int part = 0; tables && part < kTableParts; ++part) {
    loads.push_back({.bytes = 0, .ps = serverOfTablePart(part, placement.num_ps), .rows = true});
  }
  return loads;
}

ChunkMap initialMap(const std::vector<ChunkLoad>& chunks, int num_ps) {
  ChunkMap map;
  for (const ChunkLoad& chunk : chunks) map.ps.push_back(chunk.ps);
  for (int ps = 0; ps < num_ps; ++ps) map.servers.insert(ps);
  return map;
}

ChunkMap moveChunks(const std::vector<ChunkLoad>& chunks, const ChunkMap& before,
                    const std::set<int>& servers) {
  TY_CHECK(!servers.empty(), "chunks need a server");
  if (servers == before.servers) return before;
  ChunkMap map{before.ps, servers};
  for (const bool rows : {false, true}) Balancer(chunks, rows, map.ps, servers).run();
  return map;
}

int replicaServer(const std::set<int>& servers, int ps) {
  const auto next = servers.upper_bound(ps);
  const int found = next != servers.end() ? *next : servers.empty() ? ps : *servers.begin();
  return found == ps ? kWorkerKeeper : found;
}

std::string serverName(int ps) {
  return ps == kWorkerKeeper ? "worker-0" : "ps-" + std::to_string(ps);
}

Placement withChunksAt(Placement placement, const std::vector<int>& ps_of_chunk) {
  if (ps_of_chunk.empty()) return placement;
  TY_CHECK(ps_of_chunk.size() >= placement.chunks.size(), "the map is of this grid");
  std::set<int> holders;
  for (Chunk& chunk : placement.chunks) {
    chunk.ps = ps_of_chunk[chunk.id];
    holders.insert(chunk.ps);
  }
  if (!holders.empty()) placement.num_ps = *holders.rbegin() + 1;
  placement.bytes_per_ps.assign(static_cast<std::size_t>(placement.num_ps), 0);
  for (const Chunk& chunk : placement.chunks)
    placement.bytes_per_ps[static_cast<std::size_t>(chunk.ps)] += chunk.elements * 4;
  for (Part& part : placement.parts) {
    if (placement.variables[static_cast<std::size_t>(part.variable)].trainable) continue;
    if (!holders.contains(part.ps)) part.ps = 0;
    placement.bytes_per_ps[static_cast<std::size_t>(part.ps)] += part.bytes;
  }
  return placement;
}

}  // namespace trainyard::runtime
