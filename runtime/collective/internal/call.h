// One operation on its way over a transport: names its messages, counts its rounds, knows its
// deadline. The algorithms are functions over it.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "runtime/collective/collective.h"
#include "runtime/transport/transport.h"

namespace trainyard::runtime::collective::internal {

class Call {
 public:
  Call(transport::Transport& transport, const transport::Operation& operation, TimePoint deadline)
      : transport_(transport), operation_(operation), deadline_(deadline) {}

  int rank() const { return transport_.rank(); }
  int size() const { return transport_.size(); }
  const transport::Operation& operation() const { return operation_; }
  // That this rank has taken part in so far.
  int rounds() const { return rounds_; }

  std::uint64_t send(int peer, std::uint32_t part, const Array& array) {
    return transport_.send(peer, {operation_, part}, {array.data, array.bytes()});
  }
  std::uint64_t receive(int peer, std::uint32_t part, const Array& into) {
    return transport_.receive(peer, {operation_, part}, {into.data, into.bytes(), std::nullopt});
  }
  // Puts the message together with what is in `into`, by the operation's reduction.
  std::uint64_t receiveReduce(int peer, std::uint32_t part, const Array& into) {
    return transport_.receive(
        peer, {operation_, part},
        {into.data, into.bytes(), transport::Landing::Combine{into.type, operation_.op}});
  }
  Status received(int peer, std::uint64_t count, int round) {
    return transport_.waitReceived(peer, count, waitFor(round));
  }
  Status sent(int peer, std::uint64_t count, int round) {
    return transport_.waitSent(peer, count, waitFor(round));
  }

 private:
  transport::Wait waitFor(int round) {
    rounds_ = std::max(rounds_, round + 1);
    return {deadline_, &operation_, round};
  }

  transport::Transport& transport_;
  const transport::Operation operation_;
  const TimePoint deadline_;
  int rounds_ = 0;
};

// Memory that an algorithm needs, kept from call to call: the first touch of a page is dear.
class Scratch {
 public:
  // At least `bytes`, aligned for every type; what it holds is not specified.
  std::byte* get(std::size_t bytes) {
    if (memory_.size() < bytes) memory_ = std::vector<std::byte>(bytes);
    return memory_.data();
  }

 private:
  std::vector<std::byte> memory_;
};

// Each returns with all its messages sent and received. `divisor` > 1: what was put together is
// divided by it once. See cost.h for rounds and bytes.
Status ringAllReduce(Call& call, const Array& array, std::int64_t divisor);
Status ringReduceScatter(Call& call, const Array& array, std::int64_t divisor);
Status ringAllGather(Call& call, const Array& array, std::span<const std::int64_t> counts);
Status halvingDoubling(Call& call, const Array& array, std::int64_t divisor);
Status doubling(Call& call, const Array& array, std::int64_t divisor, Scratch& scratch);
// What a rank does in these two for which there is no place among a power of two.
Status throughPartner(Call& call, const Array& array, int partner);
Status directAllReduce(Call& call, const Array& array, std::int64_t divisor, Scratch& scratch);
Status directReduceScatter(Call& call, const Array& array, std::int64_t divisor, Scratch& scratch);
// Precondition: float32, and a 16-bit float on the wire.
Status directOnWire(Call& call, const Array& array, std::int64_t divisor, Scratch& scratch);
Status treeBroadcast(Call& call, const Array& array, int root);
Status chainBroadcast(Call& call, const Array& array, int root);
Status pairwiseAllToAll(Call& call, const Array& send, std::span<const std::int64_t> send_counts,
                        const Array& receive, std::span<const std::int64_t> receive_counts);
Status disseminationBarrier(Call& call);

inline void divide(const Array& array, std::int64_t divisor) {
  if (divisor > 1) divideElements(array.type, array.data, array.elements, divisor);
}

}  // namespace trainyard::runtime::collective::internal
