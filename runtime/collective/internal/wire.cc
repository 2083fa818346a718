// Direct exchange of float32 as 16-bit floats: every rank's array is rounded once, the parts are
// added as float32 in the order of ranks, the result is rounded once, and its owner keeps what the
// others get.
#include "runtime/collective/internal/call.h"

namespace trainyard::runtime::collective::internal {

Status directOnWire(Call& call, const Array& array, std::int64_t divisor, Scratch& scratch) {
  const int ranks = call.size();
  const int rank = call.rank();
  const ElementType wire = call.operation().wire;
  const Range own = sliceOf(array.elements, rank, ranks);
  const std::int64_t largest = sliceOf(array.elements, 0, ranks).size();
  // The whole array narrow; the others' parts of this slice narrow; one part wide.
  const auto narrow_bytes = static_cast<std::size_t>(array.elements) * 2;
  const auto part_bytes = static_cast<std::size_t>(largest) * 2;
  std::byte* const memory =
      scratch.get(narrow_bytes + part_bytes * static_cast<std::size_t>(ranks) + 2 * part_bytes + 8);
  const Array narrow{memory, array.elements, wire};
  std::byte* const parts = memory + narrow_bytes;
  std::byte* const wide = parts + part_bytes * static_cast<std::size_t>(ranks);
  narrowFloats(wire, narrow.data, array.data, array.elements);

  std::vector<std::uint64_t> numbers(static_cast<std::size_t>(ranks));
  std::vector<std::uint64_t> sent(static_cast<std::size_t>(ranks));
  const auto part = [&](int r) {
    return Array{parts + part_bytes * static_cast<std::size_t>(r), own.size(), wire};
  };
  for (int k = 1; k < ranks; ++k) {
    const int peer = (rank + k) % ranks;
    const Range theirs = sliceOf(array.elements, peer, ranks);
    call.send(peer, 0, narrow.slice(theirs.begin, theirs.end));
    numbers[static_cast<std::size_t>(peer)] = call.receive(peer, 0, part(peer));
  }
  const Array result = array.slice(own.begin, own.end);
  const Array narrow_result = narrow.slice(own.begin, own.end);
  for (int r = 0; r < ranks; ++r) {
    if (r != rank) {
      TY_RETURN_IF_ERROR(call.received(r, numbers[static_cast<std::size_t>(r)], 0));
    }
    const Array from = r == rank ? narrow_result : part(r);
    std::byte* const into = r == 0 ? result.data : wide;
    widenFloats(wire, into, from.data, own.size());
    if (r > 0) reduceInto(array.type, call.operation().op, result.data, wide, own.size());
  }
  divide(result, divisor);
  narrowFloats(wire, narrow_result.data, result.data, own.size());
  widenFloats(wire, result.data, narrow_result.data, own.size());
  // Every part of the narrow array has arrived by the time its owner's result comes: it may land
  // there.
  for (int k = 1; k < ranks; ++k) {
    const int peer = (rank + k) % ranks;
    const Range theirs = sliceOf(array.elements, peer, ranks);
    sent[static_cast<std::size_t>(peer)] = call.send(peer, 1, narrow_result);
    numbers[static_cast<std::size_t>(peer)] =
        call.receive(peer, 1, narrow.slice(theirs.begin, theirs.end));
  }
  for (int k = 1; k < ranks; ++k) {
    const int peer = (rank + k) % ranks;
    const Range theirs = sliceOf(array.elements, peer, ranks);
    TY_RETURN_IF_ERROR(call.received(peer, numbers[static_cast<std::size_t>(peer)], 1));
    widenFloats(wire, array.slice(theirs.begin, theirs.end).data,
                narrow.slice(theirs.begin, theirs.end).data, theirs.size());
  }
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == rank) continue;
    TY_RETURN_IF_ERROR(call.sent(peer, sent[static_cast<std::size_t>(peer)], 1));
  }
  return absl::OkStatus();
}

}  // namespace trainyard::runtime::collective::internal
