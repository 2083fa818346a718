// One operation's meetings in shared memory: all members say what they are about to do and with
// which array, and find out when one means something else.
#pragma once

#include <vector>

#include "runtime/collective/collective.h"
#include "runtime/transport/shared_arena.h"

namespace trainyard::runtime::collective::internal {

class Meeting {
 public:
  // `members`: the ranks that share `arena`, by place.
  Meeting(transport::SharedArena& arena, transport::Transport& transport,
          const std::vector<int>& members, const transport::Operation& operation,
          std::uint64_t argument, TimePoint deadline)
      : arena_(arena), transport_(transport), members_(members), deadline_(deadline) {
    offer_.operation = operation;
    offer_.argument = argument;
  }

  // Waits for all, and compares. Everything that a member wrote before is seen after. Errors as of
  // Transport::waitReceived().
  Status meet(const Array& array);
  // With the same array.
  Status meetAgain();

  const transport::Operation& operation() const { return offer_.operation; }
  int count() const { return count_; }  // meetings so far
  // Before the first meeting; what all give must be the same, but for all-to-all's argument.
  void setElements(std::int64_t elements) {
    offer_.operation.elements = static_cast<std::uint64_t>(elements);
  }
  void setArgument(std::int64_t argument) {
    offer_.argument = static_cast<std::uint64_t>(argument);
  }

  // As offered at the last meeting, by place.
  bool inArena(int place) const;
  bool allInArena() const;
  std::byte* arrayAt(int place) const { return arena_.part(place) + arena_.offer(place).offset; }
  std::int64_t largestArgument() const;

 private:
  int size() const { return static_cast<int>(members_.size()); }
  Status checkOffer(int place, const transport::Wait& wait) const;

  transport::SharedArena& arena_;
  transport::Transport& transport_;
  const std::vector<int>& members_;
  const TimePoint deadline_;
  transport::Offer offer_;
  int count_ = 0;
};

}  // namespace trainyard::runtime::collective::internal
