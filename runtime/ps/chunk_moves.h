// What an epoch's announcement says of the chunks' servers.
#pragma once

#include <cstdint>
#include <vector>

#include "trainyard/v1/coordinator.pb.h"

namespace trainyard::runtime::ps {

// Who holds which chunk in the epoch, by chunk; `ps_of_chunk` is the placement's own.
std::vector<int> serversOf(const std::vector<int>& ps_of_chunk, const v1::EpochInfo& epoch);

// Whether server `ps` holds chunks or replicas in the epoch; kWorkerKeeper where the only server's
// replicas are with the first worker.
bool servesIn(const v1::EpochInfo& epoch, int ps);

// The chunks that server `ps` is to hold in the epoch and did not hold before it, by id.
std::vector<std::uint32_t> chunksToFetch(const v1::EpochInfo& epoch, int ps);

// The chunks of which server `ps` is to keep a replica in the epoch, by id; none where it has none.
// `ps_of_chunk` is the placement's own.
std::vector<std::uint32_t> chunksToReplicate(const std::vector<int>& ps_of_chunk,
                                             const v1::EpochInfo& epoch, int ps);
// Where the steps of that server's chunks go: a server, or kWorkerKeeper; -1: nowhere.
int replicaTarget(const v1::EpochInfo& epoch, int ps);

}  // namespace trainyard::runtime::ps
