#include "runtime/session/state_memory.h"

#include <unistd.h>

namespace trainyard::runtime::session {

StatusOr<StateMemory> StateMemory::create(std::size_t bytes) {
  if (bytes == 0) return StateMemory(std::nullopt);
  TY_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::create("a program's state", bytes));
  return StateMemory(std::move(memory));
}

StatusOr<StateMemory> StateMemory::open(const MemoryPlace& place) {
  if (place.bytes == 0) return StateMemory(std::nullopt);
  TY_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::open(place.pid, place.fd, place.bytes,
                                                              SharedMemory::Access::kRead));
  return StateMemory(std::move(memory));
}

MemoryPlace StateMemory::place() const {
  if (!memory_) return {};
  return {.pid = ::getpid(), .fd = memory_->fd(), .bytes = memory_->bytes()};
}

std::span<std::byte> StateMemory::bytes() const {
  if (!memory_) return {};
  return {memory_->data(), memory_->bytes()};
}

}  // namespace trainyard::runtime::session
