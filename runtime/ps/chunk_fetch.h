// Chunks from the servers that held them until now: what an epoch needs before it begins.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "base/security/job_keys.h"
#include "trainyard/v1/coordinator.pb.h"
#include "trainyard/v1/parameter_server.pb.h"

namespace trainyard::runtime::ps {

struct FetchOptions {
  TlsIdentity identity;  // of this process; RuntimeKeys::control
  std::string job_uid;
  Duration call_limit = std::chrono::seconds(5);  // one chunk
  // Without success of any chunk; longer than the coordinator takes to end the epoch when a server
  // is gone.
  Duration patience = std::chrono::seconds(60);
  // Waits a moment before a repeat; false: the epoch has ended, nothing is to be fetched any more.
  std::function<bool()> pause;
};

// One chunk that arrived.
using TakeChunk = std::function<Status(std::uint32_t chunk, const v1::ChunkContents& contents)>;

struct FetchedChunk {
  std::uint32_t chunk = 0;
  int from = 0;             // server, one of the epoch's `sources`
  std::int64_t known = -1;  // the version that is here; the same is not sent again
};

// Fetches these chunks and hands each to `take`, one after the other.
// CANCELLED: the epoch has ended; DEADLINE_EXCEEDED names the chunk, its server and what that said
// last; errors of `take`.
Status fetchChunks(const FetchOptions& options, const v1::EpochInfo& epoch,
                   const std::vector<FetchedChunk>& chunks, const Clock& clock,
                   const TakeChunk& take);

}  // namespace trainyard::runtime::ps
