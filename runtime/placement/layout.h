// Where chunks and parts of tables are in an epoch, and where they are to be: chunks move at once,
// parts, which may be gigabytes, are copied while the epoch goes on, and are there in the next one.
// Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "runtime/placement/moves.h"

namespace trainyard::runtime {

struct Layout {
  ChunkMap map;               // who holds what
  std::vector<int> replicas;  // by chunk, who keeps its replica; -1: nobody
  // Where all of it is to be; the same map, but for parts.
  ChunkMap target;
  // By server (or kWorkerKeeper): the parts that it is to hold, or to keep a replica of, and copies
  // from who holds them.
  std::map<int, std::set<std::uint32_t>> copies;

  // Replicas are where `replicaServer` says.
  bool plain() const;
  bool operator==(const Layout&) const = default;
};

// What an epoch can begin with.
struct LayoutStart {
  std::vector<int> givers;  // by chunk, who has it
  std::set<int> members;    // servers of the epoch; those that leave may hold parts in it
  // Whether that server has this part too, or all but its newest updates. The giver always does.
  std::function<bool(int server, std::uint32_t part)> has;
};

// Everything is where it is to be: of `servers` (not empty), few chunks and parts move away from
// `before`. `replicated`: it has replicas.
Layout settledLayout(const std::vector<ChunkLoad>& chunks, const ChunkMap& before,
                     const std::set<int>& servers, bool replicated);
// The same, but a part that its new holder does not have stays with the giver, and one whose new
// keeper does not have it has its replica with somebody else who does, or none.
Layout layoutFrom(const LayoutStart& start, const std::vector<ChunkLoad>& chunks,
                  const ChunkMap& before, const std::set<int>& servers, bool replicated);

}  // namespace trainyard::runtime
