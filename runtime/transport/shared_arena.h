// Memory that the ranks of one machine share: each rank has a part that it owns and gives out, and
// every rank of the machine sees all parts. Ranks meet in it by counters, without the kernel while
// all of them run.
//
// Setting up needs a transport between the same ranks (who is where, and whether all could map all
// parts); afterwards the transport only says who is lost. A part is a SharedMemory, for which all
// ranks must see each other's processes (one pod, or one machine).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/core/status.h"
#include "base/process/shared_memory.h"
#include "runtime/transport/transport.h"

namespace trainyard::runtime::transport {

struct ArenaOptions {
  std::size_t bytes = std::size_t{64} << 20;    // of each rank's part
  Spin spin = {};                               // of a meeting
  Duration timeout = std::chrono::seconds(60);  // of setting up
};

// What a rank says when it comes to a meeting: what it is about to do, and with what. Written by
// the owner before it comes, read by the others until they have come to the next meeting.
struct Offer {
  Operation operation;
  std::uint64_t offset = kNotInArena;  // of the rank's array in its part
  std::uint64_t bytes = 0;
  std::uint64_t argument = 0;  // of the operation, e.g. the root
  static constexpr std::uint64_t kNotInArena = ~std::uint64_t{0};
};

class SharedArena {
 public:
  // All ranks of the transport call it, each with the ranks that share its memory, itself among
  // them, in ascending order; without any all share. UNAVAILABLE on all ranks, naming ranks and
  // reasons, when any rank could not make or map a part (no memory, a full folder, ranks that do
  // not see each other): the transport goes on. Other errors are the transport's, and it has
  // failed.
  static StatusOr<std::unique_ptr<SharedArena>> create(Transport& transport,
                                                       const ArenaOptions& options,
                                                       std::vector<int> members = {});
  SharedArena(const SharedArena&) = delete;
  SharedArena& operator=(const SharedArena&) = delete;

  // The part of a rank as mapped here, page aligned. Ranks are numbered by their place among the
  // members, which is their rank where all share; so in offer().
  std::byte* part(int place) const;
  int place() const { return place_; }  // this rank's
  std::size_t bytes() const { return bytes_; }
  // Memory of this rank's part, aligned to 64 bytes, zero at first, for good. RESOURCE_EXHAUSTED
  // saying how much is left.
  StatusOr<std::span<std::byte>> allocate(std::size_t bytes);
  // Of `p` in this rank's part; kNotInArena when [p, p + bytes) is not all in it.
  std::uint64_t offsetOf(const std::byte* p, std::size_t bytes) const;

  // Comes to the next meeting and waits for all members. Everything that a rank wrote before it
  // came is seen after. `transport` is asked for failures and for who has left, and fails with a
  // rank that does not come; errors as of Transport::waitReceived.
  Status meet(const Offer& offer, Transport& transport, const Wait& wait);
  // What the rank offered at the last meeting; valid until this rank comes to the next.
  const Offer& offer(int place) const;

 private:
  struct Header;
  SharedArena(const Transport& transport, const ArenaOptions& options, std::vector<int> members);
  Status makeOwn(std::uint64_t nonce);
  Status mapPeer(int place, pid_t pid, int fd, std::uint64_t nonce);
  Header& header(int place) const;
  Status awaitRank(int place, std::uint32_t meeting, Transport& transport, const Wait& wait);

  const std::vector<int> members_;  // their ranks, by place
  const int place_;                 // of this rank
  const ArenaOptions options_;
  const std::size_t bytes_;
  std::vector<std::optional<SharedMemory>> parts_;  // a header page, then what is given out
  std::size_t given_out_ = 0;
  std::uint32_t meetings_ = 0;
};

}  // namespace trainyard::runtime::transport
