#include "runtime/collective/internal/texts.h"

#include <cstring>

#include "fmt/format.h"
#include "runtime/transport/transport.h"

namespace trainyard::runtime::collective::internal {
namespace {

// What the others say decides on how much memory is taken.
Status checkLengths(const std::vector<std::int64_t>& lengths) {
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    if (lengths[r] >= 0 && lengths[r] <= kMaxTextBytes) continue;
    const auto rank = static_cast<int>(r);
    return transport::withBlamedRank(
        absl::DataLossError(fmt::format("rank {} announces a text of {} bytes, expected 0 to {}",
                                        rank, lengths[r], kMaxTextBytes)),
        rank);
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::vector<std::string>> gatherTexts(Collective& collective, const std::string& own) {
  const auto ranks = static_cast<std::size_t>(collective.size());
  const auto self = static_cast<std::size_t>(collective.rank());
  std::vector<std::int64_t> lengths(ranks);
  lengths[self] = static_cast<std::int64_t>(own.size());
  const std::vector<std::int64_t> one_each(ranks, 1);
  TY_RETURN_IF_ERROR(collective.allGather({reinterpret_cast<std::byte*>(lengths.data()),
                                           static_cast<std::int64_t>(ranks), ElementType::kInt64},
                                          one_each));
  TY_RETURN_IF_ERROR(checkLengths(lengths));
  std::vector<std::int64_t> counts;
  std::vector<std::size_t> begins;
  std::int64_t total = 0;
  for (const std::int64_t length : lengths) {
    begins.push_back(static_cast<std::size_t>(4 * total));
    counts.push_back((length + 3) / 4);
    total += counts.back();
  }
  std::vector<std::byte> all(static_cast<std::size_t>(4 * total));
  if (!own.empty()) std::memcpy(all.data() + begins[self], own.data(), own.size());
  TY_RETURN_IF_ERROR(collective.allGather({all.data(), total, ElementType::kInt32}, counts));
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < ranks; ++r) {
    texts.emplace_back(reinterpret_cast<const char*>(all.data()) + begins[r],
                       static_cast<std::size_t>(lengths[r]));
  }
  return texts;
}

}  // namespace trainyard::runtime::collective::internal
