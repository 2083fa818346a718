// Which chunks change their parameter server when the number of servers changes; and which parts of
// the job's tables, which are chunks behind the others to who only asks where they are. Pure.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "runtime/placement/placement.h"

namespace trainyard::runtime {

// One chunk of the grid, and where it is.
struct ChunkLoad {
  std::int64_t bytes = 0;
  int ps = 0;
  bool pinned = false;  // stays while its server does
  bool rows = false;    // a part of the tables; `bytes` is 0, for nobody knows
};

// Who holds which chunk.
struct ChunkMap {
  std::vector<int> ps;    // by chunk
  std::set<int> servers;  // the indices that it was made for; some may hold nothing
  bool operator==(const ChunkMap&) const = default;
};

// As the placement says, by chunk; with `tables`, then by part.
std::vector<ChunkLoad> chunkLoads(const Placement& placement, bool tables = false);
// Where the job begins: the placement's servers are 0 to num_ps - 1.
ChunkMap initialMap(const std::vector<ChunkLoad>& chunks, int num_ps);

// The map for other servers (not empty). Few chunks move: those of servers that are gone, and as
// many as it takes that nobody holds more than an even share plus one chunk (the largest); pinned
// ones only from a server that is gone. The same servers: the same map, however uneven. What moves
// from a server is spread over the order of ids, so that pushing in that order still loads all
// servers at once. Parts of tables are dealt in the same way, by themselves and by number.
ChunkMap moveChunks(const std::vector<ChunkLoad>& chunks, const ChunkMap& before,
                    const std::set<int>& servers);

// The number under which the first worker keeps the replicas of an only server's chunks. No server
// has it.
inline constexpr int kWorkerKeeper = 1 << 20;

// Which of the servers keeps a replica of the chunks of `ps`: the next one, after the last the
// first. Of an only server: kWorkerKeeper.
int replicaServer(const std::set<int>& servers, int ps);
// "ps-1"; of kWorkerKeeper "worker-0".
std::string serverName(int ps);

// The placement with its chunks on the servers of the map (by chunk, and whatever is behind them;
// empty: unchanged). Its parts
// stay as the strategy cut them, for another number of servers; global_step stays where it is as
// long as that server holds anything, and is with ps 0 then. bytes_per_ps is counted anew.
Placement withChunksAt(Placement placement, const std::vector<int>& ps_of_chunk);

}  // namespace trainyard::runtime
