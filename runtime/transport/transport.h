// Messages between the ranks of a group, in the order in which they are sent, without the
// collective operations that are made of them (runtime/collective).
//
// Both sides know what they exchange: a receive is posted with what is expected, and a message that
// is anything else is an error on all ranks. Posting never blocks; waiting always has a deadline.
//
// A group that has failed stays failed: whatever went wrong (a rank died, was silent, sent what
// nobody expected), every later call returns the first failure, the other ranks are told at once,
// and a new group has to be formed. Which rank is to blame travels in the Status (blamedRank()).
//
// A Transport belongs to one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "runtime/transport/message.h"

namespace trainyard::runtime::transport {

// How long to wait, and what for, as a failure calls it: "all_reduce ..., round 3: rank 2 ..."
struct Wait {
  TimePoint deadline;
  const Operation* operation = nullptr;  // may be null
  int round = 0;
};

// Since the group was formed. Payload only; a message on TCP is kFrameBytes longer.
struct Counters {
  std::uint64_t messages_sent = 0;
  std::uint64_t messages_received = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  Duration waited{};  // in wait calls
};

// A wait that takes long. `waiting[r]` is the rank that rank r says it waits for; ranks that have
// said nothing have not come to this operation, are stopped, or gone.
struct Stall {
  int rank = 0;  // who waits
  std::string place;
  int waits_for = 0;
  Duration waited{};
  std::vector<std::optional<int>> waiting;
};
// "all_reduce sum of 8 float32 (ring, operation 12), round 3: 5.0 s without rank 2; rank 1 waits
// for 2; not heard from: 2"
std::string toString(const Stall& stall);
// A wait for `peer` that the transport does not see, as in shared memory.
struct OutsideWait {
  int peer = 0;
  Wait wait;
  TimePoint start;
  std::optional<Duration> stall_after = {};  // the transport's, as the next
  bool announced = false;
};
// How long a wait asks again and again before it sleeps, which saves the time that waking takes and
// costs the core.
struct Spin {
  Duration most{};
  // Ranks share cores: after each look the core is offered to whoever else can use it.
  bool yields = false;
  // Asked as a wait begins, on its thread: false and it sleeps at once. None: always.
  std::function<bool()> allowed = {};

  Duration now() const {
    return most > Duration(0) && (!allowed || allowed()) ? most : Duration(0);
  }
};
// For a thread that has nothing else to do meanwhile, of one of `ranks` that have `cores` together.
Spin spinAmong(std::size_t ranks, double cores);
// How often a wait asks whether it is to go on, where it can be told.
inline constexpr Duration kCancelCheck = std::chrono::milliseconds(50);
// Called from the thread that waits.
using OnStall = std::function<void(const Stall&)>;

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Returns the number of messages sent to `peer` so far, this one included. `bytes` stays valid
  // and unchanged until waitSent() of that number. Precondition: peer != rank().
  virtual std::uint64_t send(int peer, const MessageId& id, std::span<const std::byte> bytes) = 0;
  // The same for messages from `peer`; `landing` stays valid until waitReceived(), and is written
  // at any time before that.
  virtual std::uint64_t receive(int peer, const MessageId& id, const Landing& landing) = 0;

  // Until `count` messages to `peer` have left (their memory may be used again), or `count` from
  // `peer` have landed. Everything else that was posted makes progress meanwhile. Errors, with the
  // blamed rank: UNAVAILABLE lost or gone, DEADLINE_EXCEEDED silent, ABORTED another rank failed,
  // DATA_LOSS not a message of this protocol, FAILED_PRECONDITION another message than expected.
  virtual Status waitSent(int peer, std::uint64_t count, const Wait& wait) = 0;
  virtual Status waitReceived(int peer, std::uint64_t count, const Wait& wait) = 0;

  // Looks for failures without waiting: a lost rank, a rank that aborted.
  virtual Status check() = 0;
  // Called now and then by a wait outside of the transport: looks for failures, and does what its
  // own waits do when one takes long: tells the others and the log, and at the deadline fails the
  // group with the rank that is to blame. Errors as of waitReceived().
  virtual Status watch(OutsideWait& wait) = 0;
  // The wait is over, without a failure.
  virtual void endWatch(const OutsideWait& wait) = 0;
  // As far as check() and the waits have heard: `peer` has ended its part of the group in good
  // order. What it has sent still arrives; it is a failure for whoever needs more of it.
  virtual bool hasLeft(int peer) const = 0;
  // Ends the group: the others fail naming the blamed rank of `status`, or this one; later calls
  // here return it. Keeps the first; one that was cancelled here tells the others now.
  // Precondition: !status.ok().
  virtual void abort(const Status& status) = 0;

  virtual const Counters& counters() const = 0;
};

// The rank that a failure is due to, where one is known.
std::optional<int> blamedRank(const Status& status);
Status withBlamedRank(Status status, int rank);

// The failures, in one place so that all transports say the same.
Status lostRank(int rank, const Wait& wait, std::string_view how);
Status silentRank(int rank, const Wait& wait, Duration waited);
// `cause` is the code that the other rank failed with.
Status abortedBy(int rank, int blamed, absl::StatusCode cause, std::string_view message);
// What a group failed of: that of the rank that has told of it, where that is another one.
absl::StatusCode causeOf(const Status& status);
Status unexpectedMessage(int rank, const Wait& wait, const MessageId& expected,
                         std::size_t expected_bytes, const MessageId& got, std::size_t got_bytes);
// "all_reduce ..., round 3", "" without an operation.
std::string placeOf(const Wait& wait);

// Who is to blame for a wait of `rank` for `peer`: from `peer` along what ranks say they wait for,
// to the first that says nothing. `peer` when they go round in a circle.
int blame(int rank, int peer, const std::vector<std::optional<int>>& waiting);

}  // namespace trainyard::runtime::transport
