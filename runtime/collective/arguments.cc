#include "runtime/collective/internal/arguments.h"

#include <algorithm>
#include <numeric>

#include "fmt/format.h"

namespace trainyard::runtime::collective {

Range sliceOf(std::int64_t elements, int rank, int ranks) {
  const std::int64_t each = elements / ranks;
  const std::int64_t larger = elements % ranks;
  const std::int64_t begin = each * rank + std::min<std::int64_t>(rank, larger);
  return {begin, begin + each + (rank < larger ? 1 : 0)};
}

namespace internal {

ReduceOp opOf(Reduction reduction) {
  switch (reduction) {
    case Reduction::kMin:
      return ReduceOp::kMin;
    case Reduction::kMax:
      return ReduceOp::kMax;
    case Reduction::kProduct:
      return ReduceOp::kProduct;
    case Reduction::kBitAnd:
      return ReduceOp::kBitAnd;
    case Reduction::kBitOr:
      return ReduceOp::kBitOr;
    case Reduction::kBitXor:
      return ReduceOp::kBitXor;
    case Reduction::kAverage:
      return ReduceOp::kAverage;
    case Reduction::kSum:
      return ReduceOp::kSum;
  }
  return ReduceOp::kSum;
}

transport::Operation operationOf(std::uint64_t number, transport::Kind kind, const Array& array,
                                 Reduction reduction, transport::Algorithm algorithm) {
  transport::Operation o;
  o.number = number;
  o.kind = kind;
  o.algorithm = algorithm;
  o.type = array.type;
  o.wire = array.type;
  o.op = opOf(reduction);
  o.elements = static_cast<std::uint64_t>(array.elements);
  return o;
}

std::int64_t divisorOf(Reduction reduction, int ranks) {
  return reduction == Reduction::kAverage ? ranks : 1;
}

Status checkCounts(std::span<const std::int64_t> counts, int ranks, std::int64_t elements) {
  const std::int64_t sum = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const bool negative = std::any_of(counts.begin(), counts.end(), [](auto c) { return c < 0; });
  if (static_cast<int>(counts.size()) == ranks && !negative && sum == elements) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      fmt::format("{} counts with a sum of {} for {} ranks and {} elements", counts.size(), sum,
                  ranks, elements));
}

Status checkRoot(int root, int ranks) {
  if (root >= 0 && root < ranks) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("root {} of {} ranks", root, ranks));
}

Status checkAllToAll(const Array& send, std::span<const std::int64_t> send_counts,
                     const Array& receive, std::span<const std::int64_t> receive_counts, int rank,
                     int ranks) {
  TY_RETURN_IF_ERROR(checkCounts(send_counts, ranks, send.elements));
  TY_RETURN_IF_ERROR(checkCounts(receive_counts, ranks, receive.elements));
  const auto self = static_cast<std::size_t>(rank);
  if (send_counts[self] == receive_counts[self]) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("rank {} sends itself {} elements and receives {}",
                                                rank, send_counts[self], receive_counts[self]));
}

}  // namespace internal
}  // namespace trainyard::runtime::collective
