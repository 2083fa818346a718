// State that only whoever computes understands (of an optimizer of his own, of random numbers), of
// one version of the weights: bytes that go where these go, to workers that receive them and beside
// checkpoints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/core/status.h"

namespace trainyard::runtime {

// Used by the Synchronizer's thread while it is asked for the next turn; the weights in place are
// of `version`. Errors of save() and load() mean that whoever computes is of no more use: the
// worker ends.
class ProgramState {
 public:
  virtual ~ProgramState() = default;

  struct Saved {
    std::span<const std::byte> bytes;  // not to be written
    std::shared_ptr<const void> owner;
  };
  // As it is.
  virtual StatusOr<Saved> save(std::int64_t version) = 0;
  // Where load() looks for what is to be taken over; there until load() or the next of these calls.
  // RESOURCE_EXHAUSTED: no memory for so much.
  virtual StatusOr<std::span<std::byte>> room(std::size_t bytes) = 0;
  // The same, filled with what was kept of this version beside a checkpoint. Errors name the file.
  virtual StatusOr<std::span<std::byte>> read(std::int64_t version) = 0;
  virtual Status load(std::int64_t version) = 0;
  // It is still as whoever computes began with it.
  virtual bool initial() const = 0;
};

// What goes beside a checkpoint's file: copied on the Synchronizer's thread between two turns,
// written by what is returned, on any thread.
using KeepBeside = std::function<StatusOr<std::function<Status()>>(std::int64_t version)>;

}  // namespace trainyard::runtime
