// The state of a program on its way to the member or back, in memory of whoever hands it over.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "base/core/status.h"
#include "base/process/shared_memory.h"
#include "runtime/session/message.h"

namespace trainyard::runtime::session {

class StateMemory {
 public:
  // `bytes` to be filled, 0 among them. Errors as of SharedMemory::create.
  static StatusOr<StateMemory> create(std::size_t bytes);
  // To be read. UNAVAILABLE: something else is at `place`.
  static StatusOr<StateMemory> open(const MemoryPlace& place);

  // Good for as long as this lives.
  MemoryPlace place() const;
  // Of one that was opened, not to be written.
  std::span<std::byte> bytes() const;

 private:
  explicit StateMemory(std::optional<SharedMemory> memory) : memory_(std::move(memory)) {}

  std::optional<SharedMemory> memory_;  // nothing: 0 bytes
};

}  // namespace trainyard::runtime::session
