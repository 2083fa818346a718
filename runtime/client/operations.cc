#include "runtime/client/operations.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "fmt/format.h"
#include "runtime/client/errors.h"
#include "runtime/transport/transport.h"

namespace trainyard::runtime::client {
namespace {

// Arrays above this are reduced where they are: copying them costs more than a round.
constexpr std::size_t kAloneBytes = std::size_t{256} << 10;
constexpr std::size_t kBatchBytes = std::size_t{4} << 20;

void scale(const Array& array, double factor) {
  if (factor != 1) scaleElements(array.type, array.data, array.elements, factor);
}

Status reduceOne(Collective& collective, const Array& array, const Reducing& reducing) {
  scale(array, reducing.prescale);
  TY_RETURN_IF_ERROR(collective.allReduce(array, reducing.reduction));
  scale(array, reducing.postscale);
  return absl::OkStatus();
}

// "tensor 'a'", "tensors 'a' to 'c'", "" without names.
std::string nameOf(std::span<const NamedArray> arrays) {
  if (arrays.front().name.empty()) return "";
  if (arrays.size() == 1) return fmt::format("tensor '{}'", arrays.front().name);
  return fmt::format("tensors '{}' to '{}'", arrays.front().name, arrays.back().name);
}

Status reduceTogether(Collective& collective, std::span<const NamedArray> arrays,
                      const Reducing& reducing, Staging& staging) {
  Array all{nullptr, 0, arrays.front().array.type};
  for (const NamedArray& each : arrays) all.elements += each.array.elements;
  all.data = staging.get(all.bytes());
  std::size_t at = 0;
  for (const NamedArray& each : arrays) {
    std::copy_n(each.array.data, each.array.bytes(), all.data + at);
    at += each.array.bytes();
  }
  TY_RETURN_IF_ERROR(reduceOne(collective, all, reducing));
  at = 0;
  for (const NamedArray& each : arrays) {
    std::copy_n(all.data + at, each.array.bytes(), each.array.data);
    at += each.array.bytes();
  }
  return absl::OkStatus();
}

// Equal counts where none are given. INVALID_ARGUMENT unless `elements` can be cut so.
StatusOr<Counts> countsOf(const Counts& given, const Array& whole, int ranks,
                          std::string_view what) {
  Counts counts = given;
  if (counts.empty()) {
    counts.assign(static_cast<std::size_t>(ranks), whole.elements / ranks);
  }
  const std::int64_t sum = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const bool negative = std::any_of(counts.begin(), counts.end(), [](auto c) { return c < 0; });
  if (static_cast<int>(counts.size()) == ranks && !negative && sum == whole.elements) return counts;
  return absl::InvalidArgumentError(fmt::format(
      "{}: {} elements for {} ranks, of which {} are told", what, whole.elements, ranks, sum));
}

Status checkPart(const Array& part, const Array& whole, std::int64_t elements,
                 std::string_view what) {
  if (part.type != whole.type) {
    return absl::InvalidArgumentError(
        fmt::format("{}: {} and {} in one operation", what, nameOf(part.type), nameOf(whole.type)));
  }
  if (part.elements == elements) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{}: {} elements where this rank has {}", what, part.elements, elements));
}

// What every rank sends every other one and expects of it, as all ranks see it.
struct Table {
  std::vector<std::int64_t> cells;  // of rank r: size() sends, then size() receives
  int ranks = 0;

  std::int64_t sends(int from, int to) const {
    return cells[static_cast<std::size_t>(2 * ranks * from + to)];
  }
  std::int64_t expects(int at, int from) const {
    return cells[static_cast<std::size_t>(2 * ranks * at + ranks + from)];
  }
};

StatusOr<Table> exchangeCounts(Collective& collective, const Counts& sends,
                               const Counts& receives) {
  const int ranks = collective.size();
  const auto each = static_cast<std::size_t>(2 * ranks);
  Table table{std::vector<std::int64_t>(each * static_cast<std::size_t>(ranks)), ranks};
  const auto own = table.cells.begin() + 2 * ranks * collective.rank();
  std::copy(receives.begin(), receives.end(), std::copy(sends.begin(), sends.end(), own));
  const Array array{reinterpret_cast<std::byte*>(table.cells.data()),
                    static_cast<std::int64_t>(table.cells.size()), ElementType::kInt64};
  TY_RETURN_IF_ERROR(collective.allGather(
      array, Counts(static_cast<std::size_t>(ranks), static_cast<std::int64_t>(each))));
  return table;
}

// The total of all pairs. The same answer on all ranks.
StatusOr<std::int64_t> checkTable(const Table& table) {
  std::int64_t total = 0;
  for (int from = 0; from < table.ranks; ++from) {
    for (int to = 0; to < table.ranks; ++to) {
      total += table.sends(from, to);
      if (table.sends(from, to) == table.expects(to, from)) continue;
      return livesOn(transport::withBlamedRank(
          absl::FailedPreconditionError(
              fmt::format("all_to_all: rank {} sends {} elements to rank {}, which expects {}",
                          from, table.sends(from, to), to, table.expects(to, from))),
          from));
    }
  }
  return total;
}

}  // namespace

Status compare(Collective& collective, std::span<const collective::PlannedTensor> plan) {
  const Status same = comparePlans(collective, plan);
  return absl::IsFailedPrecondition(same) ? livesOn(same) : same;
}

Status checkReducing(ElementType type, const Reducing& reducing) {
  const bool scales = reducing.prescale != 1 || reducing.postscale != 1;
  if (scales && !isFloat(type)) {
    return absl::InvalidArgumentError(fmt::format("{} cannot be scaled by a factor", nameOf(type)));
  }
  if (reducing.reduction == Reduction::kAverage && type == ElementType::kBool) {
    return absl::InvalidArgumentError("booleans have no average");
  }
  const bool bits = reducing.reduction == Reduction::kBitAnd ||
                    reducing.reduction == Reduction::kBitOr ||
                    reducing.reduction == Reduction::kBitXor;
  if (bits && isFloat(type)) {
    return absl::InvalidArgumentError(fmt::format("{} has no bitwise operations", nameOf(type)));
  }
  return absl::OkStatus();
}

std::byte* Staging::get(std::size_t bytes) {
  if (memory_.size() < bytes) memory_ = std::vector<std::byte>(bytes);
  return memory_.data();
}

Batches batchesOf(std::span<const NamedArray> arrays) {
  Batches batches;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const Array& array = arrays[i].array;
    const bool joins = i > 0 && array.bytes() <= kAloneBytes && bytes <= kBatchBytes &&
                       arrays[i - 1].array.bytes() <= kAloneBytes &&
                       arrays[i - 1].array.type == array.type;
    if (!joins) {
      batches.push_back({i, i});
      bytes = 0;
    }
    batches.back().end = i + 1;
    bytes += array.bytes();
  }
  return batches;
}

Status allReduce(Collective& collective, std::span<const NamedArray> arrays,
                 const Reducing& reducing, Staging& staging) {
  for (const Batch& batch : batchesOf(arrays)) {
    const auto some = arrays.subspan(batch.begin, batch.end - batch.begin);
    const Status done = some.size() == 1 ? reduceOne(collective, some[0].array, reducing)
                                         : reduceTogether(collective, some, reducing, staging);
    if (done.ok()) continue;
    const std::string name = nameOf(some);
    return name.empty() ? done : annotate(done, name);
  }
  return absl::OkStatus();
}

Status reduceScatter(Collective& collective, const Array& input, const Counts& given,
                     const Array& output, const Reducing& reducing, Staging& staging) {
  const int ranks = collective.size();
  TY_ASSIGN_OR_RETURN(const Counts counts, countsOf(given, input, ranks, "reduce_scatter"));
  const std::int64_t own = counts[static_cast<std::size_t>(collective.rank())];
  TY_RETURN_IF_ERROR(checkPart(output, input, own, "reduce_scatter"));
  // Slices of equal size, so that rank r's begins where the collective's does; the ends of shorter
  // ones are put together too and left alone.
  const std::int64_t most = *std::max_element(counts.begin(), counts.end());
  const Array padded{staging.get(static_cast<std::size_t>(most) * static_cast<std::size_t>(ranks) *
                                 sizeOf(input.type)),
                     most * ranks, input.type};
  std::int64_t at = 0;
  for (int r = 0; r < ranks; ++r) {
    const std::int64_t count = counts[static_cast<std::size_t>(r)];
    const Array part = padded.slice(most * r, most * (r + 1));
    const Array from = input.slice(at, at + count);
    std::copy_n(from.data, from.bytes(), part.data);
    std::fill_n(part.data + from.bytes(), part.bytes() - from.bytes(), std::byte{0});
    at += count;
  }
  scale(padded, reducing.prescale);
  TY_RETURN_IF_ERROR(collective.reduceScatter(padded, reducing.reduction));
  const Array mine = padded.slice(most * collective.rank(), most * collective.rank() + own);
  std::copy_n(mine.data, mine.bytes(), output.data);
  scale(output, reducing.postscale);
  return absl::OkStatus();
}

Status allGather(Collective& collective, const Array& input, const Array& output,
                 const Counts& given) {
  TY_ASSIGN_OR_RETURN(const Counts counts,
                      countsOf(given, output, collective.size(), "all_gather"));
  const auto rank = static_cast<std::size_t>(collective.rank());
  TY_RETURN_IF_ERROR(checkPart(input, output, counts[rank], "all_gather"));
  const std::int64_t begin = std::accumulate(
      counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(rank), std::int64_t{0});
  const Array place = output.slice(begin, begin + counts[rank]);
  if (place.data != input.data && input.elements > 0) {
    std::memmove(place.data, input.data, input.bytes());
  }
  return collective.allGather(output, counts);
}

Status allToAll(Collective& collective, const Array& send, const Counts& given_sends,
                const Array& receive, const Counts& given_receives) {
  const int ranks = collective.size();
  TY_ASSIGN_OR_RETURN(const Counts sends, countsOf(given_sends, send, ranks, "all_to_all"));
  TY_ASSIGN_OR_RETURN(const Counts receives,
                      countsOf(given_receives, receive, ranks, "all_to_all"));
  TY_RETURN_IF_ERROR(checkPart(receive, send, receive.elements, "all_to_all"));
  TY_ASSIGN_OR_RETURN(const Table table, exchangeCounts(collective, sends, receives));
  TY_ASSIGN_OR_RETURN(const std::int64_t total, checkTable(table));
  return collective.allToAll(send, sends, receive, receives, total);
}

}  // namespace trainyard::runtime::client
