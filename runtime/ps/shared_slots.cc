#include "runtime/ps/shared_slots.h"

#include <unistd.h>

#include <charconv>
#include <cstring>

#include "base/core/check.h"
#include "base/security/random.h"

namespace trainyard::runtime::ps {
namespace {

constexpr std::uint64_t kMagic = 0x3153544F4C535954;  // "TYSLOTS1"
// A cache line of its own for each slot; the first one tells whose memory it is.
constexpr std::size_t kAlign = 64;

struct Label {
  std::uint64_t magic = kMagic;
  std::uint64_t id = 0;
};

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

std::uint64_t randomId() {
  const std::string digits = randomHex(8);
  std::uint64_t id = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), id, 16);
  return id | 1;  // 0 is nobody's
}

}  // namespace

StatusOr<std::shared_ptr<SharedSlots>> SharedSlots::create(const std::vector<Chunk>& chunks) {
  std::size_t total = kAlign;
  std::unordered_map<std::uint32_t, Slot> slots;
  for (const Chunk& chunk : chunks) {
    const std::size_t bytes = chunk.elements * sizeof(float);
    slots[chunk.id] = {total, bytes, false};
    total += 2 * aligned(bytes);
  }
  TY_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::create("trainyard-chunks", total));
  const Label label{kMagic, randomId()};
  std::memcpy(memory.data(), &label, sizeof(label));
  std::shared_ptr<SharedSlots> made(new SharedSlots(std::move(memory), label.id));
  made->slots_ = std::move(slots);
  return made;
}

std::shared_ptr<SharedSlots::Hold> SharedSlots::take(std::uint32_t chunk) {
  const std::lock_guard lock(mutex_);
  const auto found = slots_.find(chunk);
  if (found == slots_.end() || found->second.taken) return nullptr;
  found->second.taken = true;
  const Slot& slot = found->second;
  return std::shared_ptr<Hold>(new Hold(shared_from_this(), chunk, slot.offset, slot.bytes));
}

v1::ShareMemoryRequest SharedSlots::invitation() const {
  v1::ShareMemoryRequest request;
  request.set_pid(::getpid());
  request.set_fd(memory_.fd());
  request.set_memory(id_);
  request.set_bytes(memory_.bytes());
  return request;
}

SharedSlots::Hold::Hold(std::shared_ptr<SharedSlots> slots, std::uint32_t chunk, std::size_t offset,
                        std::size_t bytes)
    : slots_(std::move(slots)), chunk_(chunk), offset_(offset), bytes_(bytes) {}

SharedSlots::Hold::~Hold() {
  const std::lock_guard lock(slots_->mutex_);
  slots_->slots_.at(chunk_).taken = false;
}

v1::SharedPlace SharedSlots::Hold::place(std::size_t request_bytes) const {
  v1::SharedPlace place;
  place.set_memory(slots_->id_);
  place.set_request_offset(offset_);
  place.set_request_bytes(request_bytes);
  place.set_reply_offset(offset_ + aligned(bytes_));
  place.set_reply_bytes(bytes_);
  return place;
}

void SharedSlots::Hold::write(const std::vector<PayloadPiece>& payload) const {
  std::size_t at = 0;
  for (const PayloadPiece& piece : payload) {
    TY_CHECK(at + piece.values.size_bytes() <= bytes_, "a payload is no longer than its chunk");
    std::memcpy(slots_->memory_.data() + offset_ + at, piece.values.data(),
                piece.values.size_bytes());
    at += piece.values.size_bytes();
  }
}

std::span<const std::byte> SharedSlots::Hold::reply() const {
  return {slots_->memory_.data() + offset_ + aligned(bytes_), bytes_};
}

Status SharedPeers::open(const v1::ShareMemoryRequest& request) {
  if (request.bytes() < sizeof(Label)) return absl::InvalidArgumentError("too short to be shared");
  TY_ASSIGN_OR_RETURN(SharedMemory memory,
                      SharedMemory::open(request.pid(), request.fd(), request.bytes()));
  Label label;
  std::memcpy(&label, memory.data(), sizeof(label));
  // A number of a process can be another's on another machine.
  if (label.magic != kMagic || label.id != request.memory()) {
    return absl::UnavailableError("the memory is somebody else's");
  }
  const std::lock_guard lock(mutex_);
  std::erase_if(peers_, [&](const auto& peer) { return peer.second.worker == request.worker(); });
  peers_[request.memory()] = {request.worker(),
                              std::make_shared<const SharedMemory>(std::move(memory))};
  return absl::OkStatus();
}

std::shared_ptr<const SharedMemory> SharedPeers::find(std::uint64_t id) const {
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(id);
  return found == peers_.end() ? nullptr : found->second.memory;
}

std::span<std::byte> partOf(const SharedMemory& memory, std::uint64_t offset, std::uint64_t bytes) {
  const bool inside = offset >= kAlign && offset % alignof(float) == 0 &&
                      bytes % sizeof(float) == 0 && offset <= memory.bytes() &&
                      bytes <= memory.bytes() - offset;
  return inside ? std::span(memory.data() + offset, bytes) : std::span<std::byte>();
}

}  // namespace trainyard::runtime::ps
