#include "runtime/session/session_memory.h"

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/core/check.h"
#include "fmt/format.h"

namespace trainyard::runtime::session {
namespace {

constexpr std::size_t kAlign = 64;
constexpr std::size_t kMostBytes = std::size_t{1} << 46;
constexpr std::uint64_t kLabelMagic = 0x314D454D53455954;  // "TYESMEM1"

}  // namespace

// At the beginning of the file: a number of a process may be another's by now.
struct SessionMemory::Label {
  std::uint64_t magic = kLabelMagic;
  std::atomic<std::uint32_t> interrupted = 0;
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
};

StatusOr<MemoryLayout> layoutOf(const Declaration& declaration) {
  MemoryLayout layout;
  layout.bytes = kAlign;
  const auto take = [&](std::size_t bytes) {
    const std::size_t at = layout.bytes;
    layout.bytes += (bytes + kAlign - 1) / kAlign * kAlign;
    return at;
  };
  for (const DeclaredVariable& variable : declaration.variables) {
    const auto elements = static_cast<std::size_t>(variable.elements());
    const bool fits = elements <= kMostBytes / sizeOf(variable.type);
    const std::size_t bytes = fits ? elements * sizeOf(variable.type) : kMostBytes;
    layout.values.push_back(take(bytes));
    layout.gradients.push_back(variable.trainable ? take(bytes) : 0);
    if (layout.bytes > kMostBytes)
      return absl::ResourceExhaustedError(fmt::format("{}: the model is too large", variable.name));
  }
  return layout;
}

SessionMemory::SessionMemory(SharedMemory memory, MemoryLayout layout,
                             const Declaration& declaration)
    : memory_(std::move(memory)), layout_(std::move(layout)) {
  for (const DeclaredVariable& variable : declaration.variables)
    bytes_.push_back(static_cast<std::size_t>(variable.elements()) * sizeOf(variable.type));
}

StatusOr<SessionMemory> SessionMemory::create(const Declaration& declaration) {
  TY_ASSIGN_OR_RETURN(MemoryLayout layout, layoutOf(declaration));
  TY_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::create("trainyard session", layout.bytes));
  std::construct_at(reinterpret_cast<Label*>(memory.data()));
  return SessionMemory(std::move(memory), std::move(layout), declaration);
}

StatusOr<SessionMemory> SessionMemory::open(const Declaration& declaration,
                                            const MemoryPlace& place) {
  TY_ASSIGN_OR_RETURN(MemoryLayout layout, layoutOf(declaration));
  if (place.bytes != layout.bytes) {
    return absl::UnavailableError(
        fmt::format("session: memory of {} bytes, expected {}", place.bytes, layout.bytes));
  }
  TY_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::open(place.pid, place.fd, layout.bytes));
  SessionMemory opened(std::move(memory), std::move(layout), declaration);
  if (opened.label().magic != kLabelMagic)
    return absl::UnavailableError("session: another file is in place of its memory");
  return opened;
}

SessionMemory::Label& SessionMemory::label() const {
  return *reinterpret_cast<Label*>(memory_.data());
}

MemoryPlace SessionMemory::place() const {
  return {.pid = ::getpid(), .fd = memory_.fd(), .bytes = memory_.bytes()};
}

std::span<std::byte> SessionMemory::value(std::size_t variable) const {
  return {memory_.data() + layout_.values[variable], bytes_[variable]};
}

std::span<float> SessionMemory::gradient(std::size_t variable) const {
  TY_CHECK(layout_.gradients[variable] != 0, "gradients are asked for where there are any");
  return {reinterpret_cast<float*>(memory_.data() + layout_.gradients[variable]),
          bytes_[variable] / sizeof(float)};
}

bool SessionMemory::interrupted() const {
  return label().interrupted.load(std::memory_order_acquire) != 0;
}

void SessionMemory::setInterrupted(bool interrupted) {
  label().interrupted.store(interrupted ? 1 : 0, std::memory_order_release);
}

}  // namespace trainyard::runtime::session
