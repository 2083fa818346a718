// The state of a model, or of a server's part of it, between files and whoever trains it: by chunk
// of the job's placement.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <vector>

namespace trainyard::runtime {

// All chunks of one holder at one version, ready to be written.
struct Snapshot {
  std::int64_t epoch = 0;
  std::int64_t version = 0;
  struct ChunkCopy {
    std::uint32_t chunk = 0;
    std::shared_ptr<const std::pmr::vector<float>> weights;  // shared with who holds the chunk
    std::vector<std::vector<float>> slots;                   // in the optimizer's order
  };
  std::vector<ChunkCopy> chunks;
};

// Takes one chunk that was read: its version, weights and slots.
using LoadChunk =
    std::function<void(std::uint32_t chunk, std::int64_t version, std::vector<float> weights,
                       std::vector<std::vector<float>> slots)>;

}  // namespace trainyard::runtime
