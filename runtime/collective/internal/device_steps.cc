#include "runtime/collective/internal/device_steps.h"

#include <algorithm>

namespace trainyard::runtime::collective::internal {

using Kind = DeviceStep::Kind;

std::vector<DeviceStep> reduceScatterSteps(const Array& array, Reduction reduction, int rank,
                                           int ranks) {
  std::vector<DeviceStep> steps;
  const auto slice = [&](int r) {
    const Range range = sliceOf(array.elements, r, ranks);
    return array.slice(range.begin, range.end);
  };
  if (array.elements > 0 && array.elements % ranks == 0) {
    steps.push_back({Kind::kReduceScatter, array, slice(rank), reduction});
    return steps;
  }
  for (int r = 0; r < ranks; ++r) {
    const Array part = slice(r);
    if (part.elements > 0) steps.push_back({Kind::kReduce, part, part, reduction, r});
  }
  return steps;
}

std::vector<DeviceStep> allGatherSteps(const Array& array, std::span<const std::int64_t> counts,
                                       int rank) {
  std::vector<DeviceStep> steps;
  const bool even = std::all_of(counts.begin(), counts.end(),
                                [&](std::int64_t count) { return count == counts.front(); });
  if (even && array.elements > 0) {
    const std::int64_t each = counts.front();
    steps.push_back({Kind::kAllGather, array.slice(rank * each, (rank + 1) * each), array});
    return steps;
  }
  std::int64_t begin = 0;
  for (int r = 0; r < static_cast<int>(counts.size()); ++r) {
    const std::int64_t count = counts[static_cast<std::size_t>(r)];
    const Array part = array.slice(begin, begin + count);
    begin += count;
    if (count > 0) steps.push_back({Kind::kBroadcast, part, part, Reduction::kSum, r});
  }
  return steps;
}

std::vector<DeviceStep> allToAllSteps(const Array& send, std::span<const std::int64_t> send_counts,
                                      const Array& receive,
                                      std::span<const std::int64_t> receive_counts, int rank) {
  std::vector<DeviceStep> steps;
  std::int64_t sent = 0;
  std::int64_t received = 0;
  for (int r = 0; r < static_cast<int>(send_counts.size()); ++r) {
    const auto at = static_cast<std::size_t>(r);
    const Array from = send.slice(sent, sent + send_counts[at]);
    const Array to = receive.slice(received, received + receive_counts[at]);
    sent += send_counts[at];
    received += receive_counts[at];
    if (r == rank) {
      if (from.elements > 0) steps.push_back({Kind::kCopy, from, to});
      continue;
    }
    if (from.elements > 0) steps.push_back({Kind::kSend, from, {}, Reduction::kSum, r});
    if (to.elements > 0) steps.push_back({Kind::kReceive, {}, to, Reduction::kSum, r});
  }
  return steps;
}

}  // namespace trainyard::runtime::collective::internal
