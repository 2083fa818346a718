// What one process pushes, where servers on the same machine read it.
//
// A block of memory belongs to a chunk for good, and holds what was pushed last. It may be written
// for the next step while a server still has the former request, but only where that counts for
// nothing any more: a request that was not answered is repeated with the same gradient as long as
// its epoch goes on, and a server that has sealed a newer one reads no gradient of it (before
// members begin that, all have sealed it).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/ps/payload.h"
#include "runtime/ps/shared_pool.h"
#include "trainyard/v1/parameter_server.pb.h"

namespace trainyard::runtime::ps {

// Thread-safe.
class SharedPayloads {
 public:
  explicit SharedPayloads(std::shared_ptr<SharedPool> pool) : pool_(std::move(pool)) {}

  // Where the payload lies: it is copied into its chunk's block, unless it is in the pool already.
  // `attempt` grows with each request of a chunk. Nothing where it has to be sent: another thread
  // is just copying that chunk, or has copied a later request of it (this one's thread was held
  // up); or no more memory can be shared. Not for empty payloads.
  std::optional<v1::SharedPlace> place(std::uint32_t chunk, std::uint64_t attempt,
                                       const std::vector<PayloadPiece>& payload);
  const SharedPool& pool() const { return *pool_; }

 private:
  struct Block {
    std::shared_ptr<Weights> values;
    bool taken = false;         // somebody copies into it
    std::uint64_t attempt = 0;  // of whose payload it is, or is to be
  };
  Block* take(std::uint32_t chunk, std::uint64_t attempt, std::size_t elements);
  void giveBack(Block& block);

  const std::shared_ptr<SharedPool> pool_;
  std::mutex mutex_;
  std::map<std::uint32_t, Block> blocks_;  // by chunk
};

}  // namespace trainyard::runtime::ps
