// Payloads of chunks in memory that a worker shares with a parameter server on the same machine:
// the messages then only say that they are there. A slot holds a chunk's gradient on its way out
// and its weights on their way back.
//
// A slot belongs to one call at a time, from before the gradient is written until the answer's
// weights are copied. Memory of which a call ended without the server's answer is given up: the
// server may read or write it at any time later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/core/status.h"
#include "base/process/shared_memory.h"
#include "runtime/ps/wire.h"
#include "trainyard/v1/parameter_server.pb.h"

namespace trainyard::runtime::ps {

// The worker's side. Thread-safe.
class SharedSlots : public std::enable_shared_from_this<SharedSlots> {
 public:
  struct Chunk {
    std::uint32_t id = 0;
    std::size_t elements = 0;  // float32
    bool operator==(const Chunk&) const = default;
  };
  // Errors as of SharedMemory::create.
  static StatusOr<std::shared_ptr<SharedSlots>> create(const std::vector<Chunk>& chunks);

  // One call's hold of a chunk's slot.
  class Hold {
   public:
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    // Where the server finds it.
    v1::SharedPlace place(std::size_t request_bytes) const;
    void write(const std::vector<PayloadPiece>& payload) const;
    std::span<const std::byte> reply() const;
    bool isOf(const SharedSlots& slots) const { return slots_.get() == &slots; }

   private:
    friend class SharedSlots;
    Hold(std::shared_ptr<SharedSlots> slots, std::uint32_t chunk, std::size_t offset,
         std::size_t bytes);
    const std::shared_ptr<SharedSlots> slots_;
    const std::uint32_t chunk_;
    const std::size_t offset_;  // of the gradient; the weights follow
    const std::size_t bytes_;   // of either
  };
  // Null when a call has the slot already, or there is none.
  std::shared_ptr<Hold> take(std::uint32_t chunk);
  // What the server needs to open it.
  v1::ShareMemoryRequest invitation() const;
  std::size_t bytes() const { return memory_.bytes(); }

 private:
  struct Slot {
    std::size_t offset = 0;
    std::size_t bytes = 0;
    bool taken = false;
  };
  SharedSlots(SharedMemory memory, std::uint64_t id) : memory_(std::move(memory)), id_(id) {}

  const SharedMemory memory_;
  const std::uint64_t id_;
  std::mutex mutex_;
  std::unordered_map<std::uint32_t, Slot> slots_;
};

// The server's side: what workers have shared with it. Thread-safe.
class SharedPeers {
 public:
  // In place of what the worker shared before. Errors as of SharedMemory::open.
  Status open(const v1::ShareMemoryRequest& request);
  // Null when that memory is not (or no longer) known.
  std::shared_ptr<const SharedMemory> find(std::uint64_t id) const;

 private:
  struct Peer {
    std::uint32_t worker = 0;
    std::shared_ptr<const SharedMemory> memory;
  };
  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, Peer> peers_;  // by id
};

// [offset, offset + bytes) of floats in `memory`; empty when that is not inside.
std::span<std::byte> partOf(const SharedMemory& memory, std::uint64_t offset, std::uint64_t bytes);

}  // namespace trainyard::runtime::ps
