#include "runtime/placement/internal/cut.h"

#include <algorithm>

#include "fmt/format.h"

namespace trainyard::runtime::internal {
namespace {

// Kernels work on 64 bytes at a time.
constexpr std::int64_t kAlignment = 16;

std::int64_t ceilDivide(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0);
}

Status checkAtLeast(std::int64_t value, std::int64_t least, std::string_view field,
                    std::string_view name) {
  if (value >= least) return {};
  return invalidInput(fmt::format("{}.{}", field, name),
                      fmt::format("{} is below {}", value, least));
}

Part wholePart(int index, const Variable& variable) {
  return {index, 0, 0, variable.shape.empty() ? 1 : variable.shape[0], 0, variable.bytes()};
}

// Where the k-th of n ranges begins in the concatenation whose variables begin at `starts` (the
// last entry is the total).
std::int64_t balancedCut(const std::vector<std::int64_t>& starts, int k, int n) {
  const std::int64_t total = starts.back();
  const std::int64_t range = total / n;
  const std::int64_t remainder = total % n;
  const std::int64_t ideal = range * k + (remainder * k + n / 2) / n;
  if (ideal >= total) return total;
  const auto next = std::upper_bound(starts.begin(), starts.end(), ideal);
  const std::int64_t begin = *(next - 1);
  const std::int64_t end = *next;
  const std::int64_t slack = range / 256;
  if (ideal - begin <= slack && ideal - begin <= end - ideal) return begin;
  if (end - ideal <= slack) return end;
  if (range < 4 * kAlignment) return ideal;
  const std::int64_t local = (ideal - begin + kAlignment / 2) / kAlignment * kAlignment;
  return std::min(begin + local, end);
}

}  // namespace

bool Cutter::hasAxis(const Variable& variable) const {
  return axis < static_cast<int>(variable.shape.size());
}

std::int64_t Cutter::slabs(const Variable& variable) const {
  if (kind == Kind::kWhole || !variable.trainable || !hasAxis(variable)) return 1;
  const std::int64_t dimension = variable.shape[axis];
  switch (kind) {
    case Kind::kWhole:
      return 1;
    case Kind::kFixedSize:
      return std::min(shards, dimension);
    case Kind::kMinMax:
      return std::max<std::int64_t>(
          1, std::min({dimension, shards, ceilDivide(variable.bytes(), bytes)}));
    case Kind::kMaxBytes: {
      const std::int64_t slice = variable.bytes() / dimension;
      return ceilDivide(dimension, std::max<std::int64_t>(1, bytes / slice));
    }
  }
  return 1;
}

StatusOr<Cutter> fixedSizeCutter(const v1::FixedSize& spec, int num_ps, std::string_view field) {
  Cutter cutter{Cutter::Kind::kFixedSize, spec.axis(), spec.has_shards() ? spec.shards() : num_ps,
                1};
  TY_RETURN_IF_ERROR(checkAtLeast(cutter.axis, 0, field, "axis"));
  TY_RETURN_IF_ERROR(checkAtLeast(cutter.shards, 1, field, "shards"));
  return cutter;
}

StatusOr<Cutter> minMaxCutter(const v1::MinMax& spec, int num_ps, std::string_view field) {
  constexpr std::int64_t kTensorFlowsDefault = 256 << 10;
  Cutter cutter{Cutter::Kind::kMinMax, spec.axis(),
                spec.has_max_shards() ? spec.max_shards() : num_ps,
                spec.has_min_bytes() ? spec.min_bytes() : kTensorFlowsDefault};
  TY_RETURN_IF_ERROR(checkAtLeast(cutter.axis, 0, field, "axis"));
  TY_RETURN_IF_ERROR(checkAtLeast(cutter.shards, 1, field, "maxShards"));
  TY_RETURN_IF_ERROR(checkAtLeast(cutter.bytes, 1, field, "minBytes"));
  return cutter;
}

StatusOr<Cutter> maxBytesCutter(const v1::MaxBytes& spec, std::string_view field) {
  if (!spec.has_bytes()) {
    return invalidInput(fmt::format("{}.bytes", field), "missing: the largest size of a part");
  }
  Cutter cutter{Cutter::Kind::kMaxBytes, spec.axis(), 1, spec.bytes()};
  TY_RETURN_IF_ERROR(checkAtLeast(cutter.axis, 0, field, "axis"));
  TY_RETURN_IF_ERROR(checkAtLeast(cutter.bytes, 1, field, "bytes"));
  return cutter;
}

std::vector<Part> cutVariable(const Cutter& cutter, int index, const Variable& variable) {
  const std::int64_t slabs = cutter.slabs(variable);
  if (slabs == 1) return {wholePart(index, variable)};
  const std::int64_t dimension = variable.shape[cutter.axis];
  const std::int64_t slice_bytes = variable.bytes() / dimension;
  std::vector<Part> parts;
  std::int64_t begin = 0;
  for (std::int64_t k = 0; k < slabs; ++k) {
    const std::int64_t length = dimension / slabs + (k < dimension % slabs);
    parts.push_back({index, cutter.axis, begin, begin + length, 0, length * slice_bytes});
    begin += length;
  }
  return parts;
}

std::vector<Part> cutBalanced(const std::vector<Variable>& variables,
                              const std::vector<int>& chosen, int num_ps) {
  std::vector<std::int64_t> starts = {0};
  for (const int index : chosen) starts.push_back(starts.back() + variables[index].elements());
  std::vector<Part> parts;
  std::size_t at = 0;  // position in `chosen`
  std::int64_t begin = 0;
  for (int ps = 0; ps < num_ps; ++ps) {
    const std::int64_t end = balancedCut(starts, ps + 1, num_ps);
    while (begin < end) {
      const Variable& variable = variables[chosen[at]];
      const std::int64_t stop = std::min(end, starts[at + 1]);
      Part part = wholePart(chosen[at], variable);
      if (stop - begin < variable.elements()) {
        part = {chosen[at],        kFlatAxis, begin - starts[at],
                stop - starts[at], 0,         (stop - begin) * 4};
      }
      part.ps = ps;
      parts.push_back(part);
      begin = stop;
      if (begin == starts[at + 1]) ++at;
    }
  }
  return parts;
}

}  // namespace trainyard::runtime::internal
