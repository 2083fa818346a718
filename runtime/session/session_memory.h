// The arrays of a session, in memory that program and member have mapped: of each variable its
// value, and of each that is trained its gradient. The member makes it, the program opens it.
//
// Values are the member's to write between the program's Finish and its answer, the program's
// otherwise; gradients are the program's until it says Push, then the member's until the answer to
// Finish. With Sum the member writes gradients, those of all variables, and no values.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/core/status.h"
#include "base/process/shared_memory.h"
#include "runtime/session/message.h"

namespace trainyard::runtime::session {

// Where the arrays of a declaration lie; a function of it alone, which both ends compute. Each
// begins at a multiple of 64 bytes.
struct MemoryLayout {
  std::vector<std::size_t> values;     // by variable
  std::vector<std::size_t> gradients;  // by variable; 0: it is not trained
  std::size_t bytes = 0;
};
// RESOURCE_EXHAUSTED: more than 2^46 bytes.
StatusOr<MemoryLayout> layoutOf(const Declaration& declaration);

class SessionMemory {
 public:
  // Errors as of SharedMemory::create.
  static StatusOr<SessionMemory> create(const Declaration& declaration);
  // UNAVAILABLE: what is at `place` is not of this session.
  static StatusOr<SessionMemory> open(const Declaration& declaration, const MemoryPlace& place);

  MemoryPlace place() const;
  // In the variable's type, row-major.
  std::span<std::byte> value(std::size_t variable) const;
  // Preconditions: the variable is trained, in float32.
  std::span<float> gradient(std::size_t variable) const;
  // Whether the result of the turn under way will not be used any more. Any thread, either process.
  bool interrupted() const;
  void setInterrupted(bool interrupted);

 private:
  struct Label;
  SessionMemory(SharedMemory memory, MemoryLayout layout, const Declaration& declaration);
  Label& label() const;

  SharedMemory memory_;
  MemoryLayout layout_;
  std::vector<std::size_t> bytes_;  // by variable
};

}  // namespace trainyard::runtime::session
