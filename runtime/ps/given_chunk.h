// All of one chunk on its way from the server that holds it to another one.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/ps/chunk_state.h"
#include "trainyard/v1/parameter_server.pb.h"

namespace trainyard::runtime::ps {

// Each array is as long as the chunk. Weights and the version before are shared with who holds the
// chunk: a version is never written while more than one have it. The rest are copies, because slots
// and sums change in place and may do so before the last byte has left.
struct GivenChunk {
  std::int64_t version = -1;
  v1::ChunkRecord record = {};
  std::shared_ptr<Weights> weights = nullptr;   // null: who asked has this version already
  std::shared_ptr<Weights> previous = nullptr;  // version - 1; null: not held
  std::vector<std::vector<float>> slots = {};   // in the optimizer's order
  std::shared_ptr<Weights> sum = nullptr;       // null: nothing added yet
};

}  // namespace trainyard::runtime::ps
