// Arrays of chunks on their way: what is sent, and what has arrived in memory of ours.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/ps/chunk_state.h"

namespace trainyard::runtime::ps {

// Memory to send; `owner` is released when it has left.
struct PayloadPiece {
  std::span<const float> values;
  std::shared_ptr<const void> owner;
};

// What lies in one piece, in memory that `owner` keeps.
class HeldPayload final : public GradientPayload {
 public:
  HeldPayload(std::span<const std::byte> bytes, std::shared_ptr<const void> owner)
      : bytes_(bytes), owner_(std::move(owner)) {}
  std::size_t sizeBytes() const override { return bytes_.size(); }
  void copyTo(std::span<float> out, std::size_t at) const override;
  void addTo(std::span<float> acc, std::size_t at) const override;

 private:
  std::span<const std::byte> part(std::size_t at, std::size_t elements) const;

  const std::span<const std::byte> bytes_;
  const std::shared_ptr<const void> owner_;
};

// Memory for bodies that arrive, which comes back when they are used up. Thread-safe; what it has
// given out may outlive it.
class BodyPool {
 public:
  // At least so many bytes, as floats would be aligned.
  std::shared_ptr<std::byte[]> take(std::size_t bytes);

 private:
  struct Free {
    std::mutex mutex;
    std::vector<std::pair<std::size_t, std::unique_ptr<std::byte[]>>> buffers;
  };
  const std::shared_ptr<Free> free_ = std::make_shared<Free>();
};

}  // namespace trainyard::runtime::ps
