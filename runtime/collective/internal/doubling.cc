// Recursive doubling: with a partner at distance 1, then 2, 4, ... a rank exchanges all that it
// has, and both put the two together. Half the rounds of halving and doubling, for more bytes.
// Where P is no power of two, the ranks above the largest one below P give their array to a partner
// first and get the result from it last.
#include <array>
#include <bit>

#include "runtime/collective/internal/call.h"

namespace trainyard::runtime::collective::internal {

Status doubling(Call& call, const Array& array, std::int64_t divisor, Scratch& scratch) {
  const int rank = call.rank();
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(call.size())));
  const int extra = call.size() - power;
  if (rank >= power) return throughPartner(call, array, rank - power);
  int round = 0;
  if (rank < extra) {
    TY_RETURN_IF_ERROR(
        call.received(rank + power, call.receiveReduce(rank + power, 0, array), round));
  }
  if (extra > 0) ++round;
  const Array theirs{scratch.get(array.bytes()), array.elements, array.type};
  for (int distance = 1; distance < power; distance *= 2) {
    const int partner = rank ^ distance;
    const std::uint64_t sent = call.send(partner, 0, array);
    TY_RETURN_IF_ERROR(call.received(partner, call.receive(partner, 0, theirs), round));
    TY_RETURN_IF_ERROR(call.sent(partner, sent, round++));
    // In the order of ranks, which is the same for both: they go on with the same bits.
    const bool is_lower = rank < partner;
    const std::array<const std::byte*, 2> both{is_lower ? array.data : theirs.data,
                                               is_lower ? theirs.data : array.data};
    std::byte* const into = array.data;
    if (array.elements > 0)
      reduceAcross(array.type, call.operation().op, both, {&into, 1}, array.elements);
  }
  divide(array, divisor);
  if (rank < extra) return call.sent(rank + power, call.send(rank + power, 1, array), round);
  return absl::OkStatus();
}

}  // namespace trainyard::runtime::collective::internal
