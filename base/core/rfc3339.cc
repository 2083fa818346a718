#include "base/core/rfc3339.h"

#include <chrono>

#include "base/core/strings.h"

namespace trainyard {
namespace {

// The number in `text` at [at, at + length), or -1.
int digits(std::string_view text, std::size_t at, std::size_t length) {
  if (at + length > text.size()) return -1;
  return parseNumber<int>(text.substr(at, length)).value_or(-1);
}

}  // namespace

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

}  // namespace trainyard
