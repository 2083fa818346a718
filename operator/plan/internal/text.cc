#include "operator/plan/internal/text.h"

#include <chrono>

#include "base/core/strings.h"
#include "fmt/format.h"

namespace trainyard::control {

namespace {

constexpr std::size_t kIndicesMax = 65536;

// The number in `text` at [at, at + length), or -1.
int digits(std::string_view text, std::size_t at, std::size_t length) {
  if (at + length > text.size()) return -1;
  return parseNumber<int>(text.substr(at, length)).value_or(-1);
}

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

UnixMillis parseRfc3339(std::string_view text) {
  // 2026-01-31T13:05:09[.250]Z
  const int year = digits(text, 0, 4), month = digits(text, 5, 2), day = digits(text, 8, 2);
  const int hour = digits(text, 11, 2), minute = digits(text, 14, 2), second = digits(text, 17, 2);
  if (year < 0 || hour < 0 || minute < 0 || second < 0) return 0;
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok()) return 0;
  const std::int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  const std::int64_t seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
  const int millis = text.size() > 19 && text[19] == '.' ? digits(text, 20, 3) : 0;
  return seconds * 1000 + (millis < 0 ? 0 : millis);
}

}  // namespace trainyard::control
