// Chunks and parts of tables from the servers that held them until now: what an epoch needs before
// it begins.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "runtime/placement/placement.h"
#include "runtime/ps/chunk_link.h"
#include "runtime/ps/fetch_queue.h"
#include "runtime/ps/given_chunk.h"
#include "runtime/rows/row_part.h"
#include "trainyard/v1/coordinator.pb.h"

namespace trainyard::runtime::ps {

struct FetchOptions {
  DataAccess access;  // of this process
  std::string job_uid;
  FetchLimits limits = {};
  // True: the epoch has ended, nothing is to be fetched any more. Asked every moment.
  std::function<bool()> over;
};

// One chunk, or one part, that arrived.
struct TakeFetched {
  std::function<Status(std::uint32_t chunk, GivenChunk given)> chunk;
  std::function<Status(std::uint32_t part, rows::GivenPart given)> part;
};

// Fetches these chunks of `placement`, and parts behind them, over lanes, several at a time, and
// hands each to `take`, on this thread and in the order in which they arrive.
// CANCELLED: the epoch has ended; DEADLINE_EXCEEDED names the chunk that failed last, its server
// and what that said; INTERNAL: the epoch does not name a server; errors of `take` and of
// FetchLanes::open().
Status fetchChunks(const FetchOptions& options, const Placement& placement,
                   const v1::EpochInfo& epoch, const std::vector<FetchedChunk>& chunks,
                   const Clock& clock, const TakeFetched& take);

}  // namespace trainyard::runtime::ps
