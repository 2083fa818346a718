// Recursive halving and doubling (Rabenseifner). Halving: with a partner at half the group's
// distance, then a quarter, ..., a rank gives away one half of what it is responsible for and puts
// the other half together, until it holds 1/P of the result. Doubling goes the same way back,
// giving away results. Where P is no power of two, the ranks above the largest one below P give
// their array to a partner first and get the result from it last.
#include <bit>

#include "runtime/collective/internal/call.h"

namespace trainyard::runtime::collective::internal {
namespace {

struct Exchange {
  int partner = 0;
  Range kept;
  Range given;
};

std::vector<Exchange> exchangesOf(int rank, int power, std::int64_t elements) {
  std::vector<Exchange> exchanges;
  Range range{0, elements};
  for (int distance = power / 2; distance > 0; distance /= 2) {
    const std::int64_t middle = range.begin + range.size() / 2;
    const Range lower{range.begin, middle};
    const Range upper{middle, range.end};
    const bool keeps_lower = (rank & distance) == 0;
    exchanges.push_back(
        {rank ^ distance, keeps_lower ? lower : upper, keeps_lower ? upper : lower});
    range = exchanges.back().kept;
  }
  return exchanges;
}

}  // namespace

Status throughPartner(Call& call, const Array& array, int partner) {
  const std::uint64_t given = call.send(partner, 0, array);
  const std::uint64_t result = call.receive(partner, 1, array);
  TY_RETURN_IF_ERROR(call.sent(partner, given, 0));
  return call.received(partner, result, 0);
}

Status halvingDoubling(Call& call, const Array& array, std::int64_t divisor) {
  const int rank = call.rank();
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(call.size())));
  const int extra = call.size() - power;
  const std::uint32_t part = 0;
  if (rank >= power) return throughPartner(call, array, rank - power);
  int round = 0;
  if (rank < extra) {
    TY_RETURN_IF_ERROR(
        call.received(rank + power, call.receiveReduce(rank + power, part, array), round));
  }
  if (extra > 0) ++round;
  const std::vector<Exchange> exchanges = exchangesOf(rank, power, array.elements);
  for (const Exchange& e : exchanges) {
    const Array kept = array.slice(e.kept.begin, e.kept.end);
    const Array given = array.slice(e.given.begin, e.given.end);
    const std::uint64_t sent = call.send(e.partner, part, given);
    const std::uint64_t got = call.receiveReduce(e.partner, part, kept);
    TY_RETURN_IF_ERROR(call.received(e.partner, got, round));
    TY_RETURN_IF_ERROR(call.sent(e.partner, sent, round++));
  }
  if (!exchanges.empty()) {
    const Range mine = exchanges.back().kept;
    divide(array.slice(mine.begin, mine.end), divisor);
  }
  for (auto e = exchanges.rbegin(); e != exchanges.rend(); ++e) {
    const std::uint64_t sent =
        call.send(e->partner, part + 1, array.slice(e->kept.begin, e->kept.end));
    const std::uint64_t got =
        call.receive(e->partner, part + 1, array.slice(e->given.begin, e->given.end));
    TY_RETURN_IF_ERROR(call.received(e->partner, got, round));
    TY_RETURN_IF_ERROR(call.sent(e->partner, sent, round++));
  }
  if (rank < extra) {
    return call.sent(rank + power, call.send(rank + power, part + 1, array), round);
  }
  return absl::OkStatus();
}

}  // namespace trainyard::runtime::collective::internal
