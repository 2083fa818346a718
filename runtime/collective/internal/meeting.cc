#include "runtime/collective/internal/meeting.h"

#include <algorithm>

#include "fmt/format.h"

namespace trainyard::runtime::collective::internal {

using transport::Kind;
using transport::Offer;

Status Meeting::meet(const Array& array) {
  offer_.offset = arena_.offsetOf(array.data, array.bytes());
  offer_.bytes = array.bytes();
  return meetAgain();
}

Status Meeting::meetAgain() {
  const transport::Wait wait{deadline_, &offer_.operation, count_++};
  TY_RETURN_IF_ERROR(arena_.meet(offer_, transport_, wait));
  for (int place = 0; place < size(); ++place) {
    if (place == arena_.place()) continue;
    Status same = checkOffer(place, wait);
    if (same.ok()) continue;
    transport_.abort(same);
    return same;
  }
  return absl::OkStatus();
}

Status Meeting::checkOffer(int place, const transport::Wait& wait) const {
  const Offer& theirs = arena_.offer(place);
  const int rank = members_[static_cast<std::size_t>(place)];
  // What it may differ in: where its array is, and what it has for others.
  const bool argument_counts = offer_.operation.kind != Kind::kAllToAll;
  if (theirs.operation != offer_.operation ||
      (argument_counts && theirs.argument != offer_.argument)) {
    // Of operations that are equal otherwise: broadcasts from several ranks.
    const std::string roots =
        theirs.operation == offer_.operation
            ? fmt::format(" with root {}, here with {}", theirs.argument, offer_.argument)
            : "";
    return transport::withBlamedRank(
        absl::FailedPreconditionError(fmt::format("{}: rank {} is in {}{}", placeOf(wait), rank,
                                                  transport::toString(theirs.operation), roots)),
        rank);
  }
  const bool fits =
      theirs.offset == Offer::kNotInArena ||
      (theirs.offset <= arena_.bytes() && theirs.bytes <= arena_.bytes() - theirs.offset);
  if (fits && (theirs.bytes == offer_.bytes || !argument_counts)) return absl::OkStatus();
  return transport::withBlamedRank(
      absl::DataLossError(fmt::format("{}: rank {} offers {} bytes at {}", placeOf(wait), rank,
                                      theirs.bytes, theirs.offset)),
      rank);
}

bool Meeting::inArena(int place) const {
  return arena_.offer(place).offset != Offer::kNotInArena;
}

bool Meeting::allInArena() const {
  for (int place = 0; place < size(); ++place) {
    if (!inArena(place)) return false;
  }
  return true;
}

std::int64_t Meeting::largestArgument() const {
  std::uint64_t largest = 0;
  for (int place = 0; place < size(); ++place) {
    largest = std::max(largest, arena_.offer(place).argument);
  }
  return static_cast<std::int64_t>(largest);
}

}  // namespace trainyard::runtime::collective::internal
