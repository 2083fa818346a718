#include "runtime/collective/plan.h"

#include <algorithm>

#include "base/core/strings.h"
#include "base/security/sha256.h"
#include "fmt/format.h"
#include "runtime/collective/internal/texts.h"

namespace trainyard::runtime::collective {
namespace {

std::string describe(const PlannedTensor& tensor) {
  const std::string whole =
      fmt::format("{} of {} {}", tensor.name, tensor.elements, nameOf(tensor.type));
  return tensor.rows > 0 ? fmt::format("{} by its {} rows", whole, tensor.rows) : whole;
}

// One line for each tensor: type, elements, rows, name.
std::string toText(std::span<const PlannedTensor> plan) {
  std::string text;
  for (const PlannedTensor& tensor : plan) {
    text += fmt::format("{} {} {} {}\n", static_cast<int>(tensor.type), tensor.elements,
                        tensor.rows, tensor.name);
  }
  return text;
}

// What does not parse is left out, and differs.
std::vector<PlannedTensor> fromText(std::string_view text) {
  std::vector<PlannedTensor> plan;
  for (const std::string_view line : split(text, '\n')) {
    const auto [type_text, rest] = splitFirst(line, ' ');
    const auto [elements_text, rows_and_name] = splitFirst(rest, ' ');
    const auto [rows_text, name] = splitFirst(rows_and_name, ' ');
    const auto type = parseNumber<int>(type_text);
    const auto elements = parseNumber<std::int64_t>(elements_text);
    const auto rows = parseNumber<std::int64_t>(rows_text);
    if (!type || !elements || !rows || *type < 0 || *type >= kElementTypes) continue;
    plan.push_back({std::string(name), static_cast<ElementType>(*type), *elements, *rows});
  }
  return plan;
}

}  // namespace

std::vector<Bucket> planBuckets(std::span<const PlannedTensor> tensors, const BucketSizes& sizes) {
  std::vector<Bucket> buckets;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const PlannedTensor& tensor = tensors[i];
    if (tensor.rows > 0) continue;
    const std::int64_t limit = buckets.size() <= 1 ? sizes.first_bytes : sizes.bytes;
    const auto size = static_cast<std::int64_t>(sizeOf(tensor.type));
    const bool fits = !buckets.empty() && buckets.back().type == tensor.type &&
                      (buckets.back().elements + tensor.elements) * size <= limit;
    if (!fits) buckets.push_back({tensor.type, 0, {}});
    Bucket& bucket = buckets.back();
    bucket.parts.push_back({i, bucket.elements});
    bucket.elements += tensor.elements;
  }
  return buckets;
}

std::string differenceOf(std::span<const PlannedTensor> first, int first_rank,
                         std::span<const PlannedTensor> second, int second_rank) {
  const std::size_t both = std::min(first.size(), second.size());
  for (std::size_t i = 0; i < both; ++i) {
    if (first[i] == second[i]) continue;
    return fmt::format("tensor {} is {} on rank {} and {} on rank {}", i, describe(first[i]),
                       first_rank, describe(second[i]), second_rank);
  }
  if (first.size() == second.size()) return "";
  const bool is_longer = first.size() > second.size();
  return fmt::format("tensor {}, {}, is only on rank {}, not on rank {}", both,
                     describe((is_longer ? first : second)[both]),
                     is_longer ? first_rank : second_rank, is_longer ? second_rank : first_rank);
}

Status comparePlans(Collective& collective, std::span<const PlannedTensor> plan) {
  const std::string text = toText(plan);
  TY_ASSIGN_OR_RETURN(const auto hashes, internal::gatherTexts(collective, sha256Hex(text)));
  const auto other = std::find_if(hashes.begin(), hashes.end(),
                                  [&](const std::string& hash) { return hash != hashes[0]; });
  if (other == hashes.end()) return absl::OkStatus();
  const auto rank = static_cast<int>(other - hashes.begin());
  auto texts = internal::gatherTexts(collective, text);
  if (!texts.ok()) return annotate(texts.status(), "ranks do not train the same tensors");
  const std::string difference = differenceOf(
      fromText((*texts)[0]), 0, fromText((*texts)[static_cast<std::size_t>(rank)]), rank);
  return transport::withBlamedRank(
      absl::FailedPreconditionError("ranks do not train the same tensors: " + difference), rank);
}

}  // namespace trainyard::runtime::collective
