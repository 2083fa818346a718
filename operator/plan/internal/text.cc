#include "operator/plan/internal/text.h"

#include "base/core/strings.h"
#include "fmt/format.h"

namespace trainyard::control {

namespace {

constexpr std::size_t kIndicesMax = 65536;

}  // namespace

std::string formatIndices(const std::set<std::uint32_t>& indices) {
  std::string text;
  for (auto it = indices.begin(); it != indices.end();) {
    const std::uint32_t first = *it;
    std::uint32_t last = first;
    for (++it; it != indices.end() && *it == last + 1; ++it) last = *it;
    if (!text.empty()) text += ',';
    text += first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
  }
  return text;
}

std::set<std::uint32_t> parseIndices(std::string_view text) {
  std::set<std::uint32_t> indices;
  if (text.empty()) return indices;
  for (const std::string_view part : split(text, ',')) {
    const auto [from, to] = splitFirst(part, '-');
    const auto first = parseNumber<std::uint32_t>(from);
    const auto last = to.empty() ? first : parseNumber<std::uint32_t>(to);
    if (!first || !last) continue;
    for (std::uint64_t i = *first; i <= *last && indices.size() < kIndicesMax; ++i) {
      indices.insert(static_cast<std::uint32_t>(i));
    }
  }
  return indices;
}

std::string formatMillis(UnixMillis at) {
  std::string text = formatRfc3339(at);  // ends in Z
  text.pop_back();
  return fmt::format("{}.{:03}Z", text, at % 1000);
}

}  // namespace trainyard::control
