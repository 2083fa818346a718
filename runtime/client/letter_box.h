// What letters a rank waits for and which have come, without sockets: each that comes goes to the
// first posted receive that fits, in the order in which they were posted, or is kept until one is.
#pragma once

#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/core/clock.h"
#include "runtime/client/letter.h"
#include "runtime/client/work.h"
#include "runtime/collective/collective.h"

namespace trainyard::runtime::client {

struct PostedReceive {
  collective::Array into;
  int from = -1;  // any
  std::uint64_t tag = 0;
  TimePoint deadline;
  std::shared_ptr<Work> work;
};

// A receive and how it went.
struct Delivered {
  std::shared_ptr<Work> work;
  Status status;
};
void finishAll(std::span<const Delivered> delivered);

// Where the bytes of a letter go: into the array of a receive, or into memory that is kept (`kept`)
// until somebody wants it. FAILED_PRECONDITION in `refused`: the receive has another type or size;
// its bytes are read all the same.
struct Arrival {
  int from = 0;
  Letter letter;
  std::byte* into = nullptr;
  std::vector<std::byte> kept;
  std::optional<PostedReceive> receive;
  Status refused;
};

// Not thread-safe.
class LetterBox {
 public:
  // Nothing when it has to wait.
  std::optional<Delivered> post(PostedReceive receive);
  // The header of a letter has come; its bytes are to be put at `into`.
  Arrival arriving(int from, const Letter& letter);
  // All its bytes have. Nothing when nobody has asked for it yet.
  std::optional<Delivered> arrived(Arrival arrival);

  // Receives that wait for `peer` alone fail with `why`; all of them when `nobody_left`.
  std::vector<Delivered> lose(int peer, const Status& why, bool nobody_left);
  std::vector<Delivered> failAll(const Status& why);
  // Those whose time is over.
  std::vector<Delivered> expire(TimePoint now);
  std::optional<TimePoint> nextDeadline() const;

 private:
  std::list<PostedReceive> posted_;
  std::deque<Arrival> kept_;
};

}  // namespace trainyard::runtime::client
