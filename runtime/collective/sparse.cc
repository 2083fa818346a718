#include "runtime/collective/sparse.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "fmt/format.h"

namespace trainyard::runtime::collective {
namespace {

// What ranks tell each other first.
struct Shape {
  std::int64_t count = 0;
  std::int64_t rows = 0;
  std::int64_t width = 0;
};
constexpr std::int64_t kShapeNumbers = 3;
static_assert(sizeof(Shape) == kShapeNumbers * sizeof(std::int64_t));

Array arrayOfNumbers(std::int64_t* numbers, std::int64_t n) {
  return {reinterpret_cast<std::byte*>(numbers), n, ElementType::kInt64};
}

Status checkOwn(const SparseRows& own) {
  const auto inside = [&](std::int64_t row) { return row >= 0 && row < own.rows; };
  if (own.values.size() != own.indices.size() * static_cast<std::size_t>(own.width)) {
    return absl::InvalidArgumentError(fmt::format(
        "{} elements for {} rows of {}", own.values.size(), own.indices.size(), own.width));
  }
  if (std::all_of(own.indices.begin(), own.indices.end(), inside)) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("a row outside of {}", own.rows));
}

StatusOr<std::vector<Shape>> gatherShapes(Collective& collective, const SparseRows& own) {
  const auto ranks = static_cast<std::size_t>(collective.size());
  std::vector<Shape> shapes(ranks);
  shapes[static_cast<std::size_t>(collective.rank())] = {
      static_cast<std::int64_t>(own.indices.size()), own.rows, own.width};
  const std::vector<std::int64_t> each(ranks, kShapeNumbers);
  TY_RETURN_IF_ERROR(collective.allGather(
      arrayOfNumbers(&shapes[0].count, kShapeNumbers * static_cast<std::int64_t>(ranks)), each));
  for (std::size_t r = 0; r < ranks; ++r) {
    const Shape& shape = shapes[r];
    if (shape.rows != shapes[0].rows || shape.width != shapes[0].width) {
      return transport::withBlamedRank(
          absl::FailedPreconditionError(
              fmt::format("rank {} has rows of a matrix of {} x {}, rank 0 of {} x {}", r,
                          shape.rows, shape.width, shapes[0].rows, shapes[0].width)),
          static_cast<int>(r));
    }
    if (shape.count < 0 || shape.count > shape.rows) {
      return transport::withBlamedRank(
          absl::DataLossError(fmt::format("rank {} has {} of {} rows", r, shape.count, shape.rows)),
          static_cast<int>(r));
    }
  }
  return shapes;
}

// The rows of all ranks, one rank's after the other's.
struct Gathered {
  std::vector<std::int64_t> counts;  // by rank
  std::vector<std::int64_t> indices;
  std::vector<float> values;
};

StatusOr<Gathered> gatherRows(Collective& collective, const SparseRows& own,
                              const std::vector<Shape>& shapes) {
  Gathered all;
  std::int64_t before = 0;  // rows of lower ranks
  std::int64_t total = 0;
  std::vector<std::int64_t> elements;
  for (std::size_t r = 0; r < shapes.size(); ++r) {
    if (static_cast<int>(r) == collective.rank()) before = total;
    all.counts.push_back(shapes[r].count);
    elements.push_back(shapes[r].count * own.width);
    total += shapes[r].count;
  }
  if (total == 0) return all;
  all.indices.resize(static_cast<std::size_t>(total));
  all.values.resize(static_cast<std::size_t>(total * own.width));
  std::copy(own.indices.begin(), own.indices.end(), all.indices.begin() + before);
  std::copy(own.values.begin(), own.values.end(), all.values.begin() + before * own.width);
  TY_RETURN_IF_ERROR(collective.allGather(arrayOfNumbers(all.indices.data(), total), all.counts));
  TY_RETURN_IF_ERROR(collective.allGather(arrayOf(all.values), elements));
  return all;
}

// Another process's indices say where memory is written.
Status checkGathered(const Gathered& all, std::int64_t rows) {
  std::size_t at = 0;
  for (std::size_t r = 0; r < all.counts.size(); ++r) {
    std::int64_t last = -1;
    for (std::int64_t i = 0; i < all.counts[r]; ++i, ++at) {
      if (all.indices[at] <= last || all.indices[at] >= rows) {
        return transport::withBlamedRank(
            absl::DataLossError(fmt::format("rank {} has row {} of {} after row {}", r,
                                            all.indices[at], rows, last)),
            static_cast<int>(r));
      }
      last = all.indices[at];
    }
  }
  return absl::OkStatus();
}

// Rows with the same index, in the order in which they are given, become one.
SparseRows addUp(std::int64_t rows, std::int64_t width, std::span<const std::int64_t> indices,
                 std::span<const float> values) {
  std::vector<std::size_t> order(indices.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return indices[a] < indices[b]; });
  SparseRows sum{rows, width, {}, {}};
  const auto n = static_cast<std::size_t>(width);
  for (const std::size_t i : order) {
    const std::span<const float> row = values.subspan(i * n, n);
    if (sum.indices.empty() || sum.indices.back() != indices[i]) {
      sum.indices.push_back(indices[i]);
      sum.values.insert(sum.values.end(), row.begin(), row.end());
      continue;
    }
    float* const into = sum.values.data() + sum.values.size() - n;
    for (std::size_t k = 0; k < n; ++k) into[k] += row[k];
  }
  return sum;
}

bool isCoalesced(const SparseRows& given) {
  return std::adjacent_find(given.indices.begin(), given.indices.end(), std::greater_equal<>()) ==
         given.indices.end();
}

// The coalesced rows of all ranks, checked.
StatusOr<Gathered> gather(Collective& collective, const SparseRows& own) {
  TY_RETURN_IF_ERROR(checkOwn(own));
  if (!isCoalesced(own))
    return gather(collective, addUp(own.rows, own.width, own.indices, own.values));
  TY_ASSIGN_OR_RETURN(const std::vector<Shape> shapes, gatherShapes(collective, own));
  TY_ASSIGN_OR_RETURN(Gathered all, gatherRows(collective, own, shapes));
  TY_RETURN_IF_ERROR(checkGathered(all, own.rows));
  return all;
}

}  // namespace

SparseRows coalesce(const SparseRows& given) {
  return addUp(given.rows, given.width, given.indices, given.values);
}

StatusOr<SparseRows> sumRows(Collective& collective, const SparseRows& own) {
  TY_ASSIGN_OR_RETURN(const Gathered all, gather(collective, own));
  return addUp(own.rows, own.width, all.indices, all.values);
}

Status sumRowsInto(Collective& collective, const SparseRows& own, std::span<float> matrix) {
  const auto width = static_cast<std::size_t>(own.width);
  if (matrix.size() != static_cast<std::size_t>(own.rows) * width) {
    return absl::InvalidArgumentError(
        fmt::format("{} elements for a matrix of {} x {}", matrix.size(), own.rows, own.width));
  }
  TY_ASSIGN_OR_RETURN(const Gathered all, gather(collective, own));
  std::fill(matrix.begin(), matrix.end(), 0.0F);
  const float* from = all.values.data();
  for (const std::int64_t row : all.indices) {
    float* const into = matrix.data() + static_cast<std::size_t>(row) * width;
    for (std::size_t k = 0; k < width; ++k) into[k] += from[k];
    from += width;
  }
  return absl::OkStatus();
}

Cost sumRowsCost(std::span<const std::int64_t> counts, std::int64_t width, int rank) {
  const std::vector<std::int64_t> shapes(counts.size(), kShapeNumbers);
  std::vector<std::int64_t> elements;
  for (const std::int64_t count : counts) elements.push_back(count * width);
  std::vector<Cost> costs = {allGatherCost(shapes, sizeof(std::int64_t), rank)};
  if (std::any_of(counts.begin(), counts.end(), [](auto count) { return count > 0; })) {
    costs.push_back(allGatherCost(counts, sizeof(std::int64_t), rank));
    costs.push_back(allGatherCost(elements, sizeof(float), rank));
  }
  Cost sum;
  for (const Cost& cost : costs) {
    sum.rounds += cost.rounds;
    sum.messages += cost.messages;
    sum.bytes += cost.bytes;
  }
  return sum;
}

}  // namespace trainyard::runtime::collective
