// Operations that move data without putting it together.
#include "runtime/collective/cost.h"
#include "runtime/collective/internal/call.h"

namespace trainyard::runtime::collective::internal {

// Places are ranks counted from the root. In round k the places below 2^k, which have the array,
// send it to those 2^k further on.
Status treeBroadcast(Call& call, const Array& array, int root) {
  const int ranks = call.size();
  const int place = (call.rank() - root + ranks) % ranks;
  const auto rankAt = [&](int p) { return (p + root) % ranks; };
  std::vector<std::pair<int, std::uint64_t>> sent;
  int round = 0;
  for (int distance = 1; distance < ranks; distance *= 2, ++round) {
    if (place < distance && place + distance < ranks) {
      const int child = rankAt(place + distance);
      sent.emplace_back(child, call.send(child, 0, array));
    } else if (place >= distance && place < 2 * distance) {
      const int parent = rankAt(place - distance);
      TY_RETURN_IF_ERROR(call.received(parent, call.receive(parent, 0, array), round));
    }
  }
  for (const auto& [child, number] : sent) {
    TY_RETURN_IF_ERROR(call.sent(child, number, round - 1));
  }
  return absl::OkStatus();
}

// From the root along the ring, in segments: each is passed on while the next arrives.
Status chainBroadcast(Call& call, const Array& array, int root) {
  const int ranks = call.size();
  const int place = (call.rank() - root + ranks) % ranks;
  const int left = (call.rank() - 1 + ranks) % ranks;
  const int right = (call.rank() + 1) % ranks;
  const std::int64_t segments = segmentsOf(static_cast<std::int64_t>(array.bytes()));
  const auto segment = [&](std::int64_t j) {
    return array.slice(array.elements * j / segments, array.elements * (j + 1) / segments);
  };
  const bool receives = place > 0;
  const bool sends = place < ranks - 1;
  std::uint64_t first = 0;
  for (std::int64_t j = 0; receives && j < segments; ++j) {
    const auto number = call.receive(left, static_cast<std::uint32_t>(j), segment(j));
    if (j == 0) first = number;
  }
  std::uint64_t last = 0;
  for (std::int64_t j = 0; j < segments; ++j) {
    if (receives) {
      TY_RETURN_IF_ERROR(call.received(left, first + static_cast<std::uint64_t>(j), place - 1));
    }
    if (sends) last = call.send(right, static_cast<std::uint32_t>(j), segment(j));
  }
  return sends ? call.sent(right, last, place) : absl::OkStatus();
}

Status pairwiseAllToAll(Call& call, const Array& send, std::span<const std::int64_t> send_counts,
                        const Array& receive, std::span<const std::int64_t> receive_counts) {
  const auto ranges = [&](std::span<const std::int64_t> counts) {
    std::vector<Range> result;
    std::int64_t begin = 0;
    for (const std::int64_t count : counts) {
      result.push_back({begin, begin + count});
      begin += count;
    }
    return result;
  };
  const std::vector<Range> to = ranges(send_counts);
  const std::vector<Range> from = ranges(receive_counts);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> numbers(to.size());
  for (int k = 1; k < call.size(); ++k) {
    const auto peer = static_cast<std::size_t>((call.rank() + k) % call.size());
    numbers[peer].first =
        call.send(static_cast<int>(peer), 0, send.slice(to[peer].begin, to[peer].end));
    numbers[peer].second =
        call.receive(static_cast<int>(peer), 0, receive.slice(from[peer].begin, from[peer].end));
  }
  const auto self = static_cast<std::size_t>(call.rank());
  const Array own = send.slice(to[self].begin, to[self].end);
  std::copy_n(own.data, own.bytes(), receive.slice(from[self].begin, from[self].end).data);
  for (int peer = 0; peer < call.size(); ++peer) {
    if (peer == call.rank()) continue;
    TY_RETURN_IF_ERROR(call.received(peer, numbers[static_cast<std::size_t>(peer)].second, 0));
    TY_RETURN_IF_ERROR(call.sent(peer, numbers[static_cast<std::size_t>(peer)].first, 0));
  }
  return absl::OkStatus();
}

// In round k a rank tells the one 2^k further on that it, and all it has heard of, are here.
// (Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization", 1988.)
Status disseminationBarrier(Call& call) {
  const int ranks = call.size();
  int round = 0;
  for (int distance = 1; distance < ranks; distance *= 2, ++round) {
    const int to = (call.rank() + distance) % ranks;
    const int from = (call.rank() - distance + ranks) % ranks;
    const auto part = static_cast<std::uint32_t>(round);
    const std::uint64_t sent = call.send(to, part, {});
    const std::uint64_t got = call.receive(from, part, {});
    TY_RETURN_IF_ERROR(call.received(from, got, round));
    TY_RETURN_IF_ERROR(call.sent(to, sent, round));
  }
  return absl::OkStatus();
}

}  // namespace trainyard::runtime::collective::internal
