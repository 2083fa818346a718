// What an epoch's announcement says of the chunks' servers.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "trainyard/v1/coordinator.pb.h"

namespace trainyard::runtime::ps {

// Who holds which chunk in the epoch, by chunk; `ps_of_chunk` is the placement's own.
std::vector<int> serversOf(const std::vector<int>& ps_of_chunk, const v1::EpochInfo& epoch);

// Whether server `ps` holds chunks or replicas in the epoch, or copies parts; kWorkerKeeper where
// the first worker does.
bool servesIn(const v1::EpochInfo& epoch, int ps);

// The chunks that server `ps` is to hold in the epoch and did not hold before it, by id.
std::vector<std::uint32_t> chunksToFetch(const v1::EpochInfo& epoch, int ps);

// The chunks of which server `ps` is to keep a replica in the epoch, by id; none where it has none.
// `ps_of_chunk` is the placement's own.
std::vector<std::uint32_t> chunksToReplicate(const std::vector<int>& ps_of_chunk,
                                             const v1::EpochInfo& epoch, int ps);
// Where steps go in an epoch.
class ReplicaTargets {
 public:
  explicit ReplicaTargets(const v1::EpochInfo& epoch);
  // Those of this chunk of server `ps`: to a server, or to kWorkerKeeper; -1: nowhere.
  int of(int ps, std::uint32_t chunk) const;

 private:
  bool replicated_;
  std::set<int> servers_;
  std::vector<int> by_chunk_;
};
// Of the server's parts, those whose steps go nowhere though the epoch has replicas. `ps_of_chunk`
// as above.
std::set<std::uint32_t> unguardedChunks(const std::vector<int>& ps_of_chunk,
                                        const v1::EpochInfo& epoch, int ps);
// Who gives chunk `chunk` to who is to have its replica when the epoch begins: who holds it then,
// and for a part who has held it before, of whom copies may be here.
int replicaSource(const std::vector<int>& ps_of_chunk, const v1::EpochInfo& epoch,
                  std::uint32_t chunk, bool part);

// The processes of the epoch's sources, by server; and of one of them, empty where it is none.
std::map<int, v1::Incarnation> sourcesOf(const v1::EpochInfo& epoch);
v1::Incarnation incarnationOf(const v1::EpochInfo& epoch, int ps);

// The parts that the server copies while the epoch runs, by number; and who copies which.
std::vector<std::uint32_t> partsToCopy(const v1::EpochInfo& epoch, int ps);
std::map<std::uint32_t, std::set<int>> followersIn(const v1::EpochInfo& epoch);

}  // namespace trainyard::runtime::ps
