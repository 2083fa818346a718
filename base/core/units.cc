#include "base/core/units.h"

#include <cmath>

#include "base/core/strings.h"
#include "fmt/format.h"

namespace trainyard {
namespace {

// The number that `text` begins with; `rest` is what follows, without the space between.
std::optional<double> leadingNumber(std::string_view text, std::string_view* rest) {
  const std::size_t end = text.find_first_not_of("0123456789.");
  const auto number = parseNumber<double>(text.substr(0, end));
  if (!number || !(*number > 0)) return std::nullopt;
  *rest = end == std::string_view::npos ? std::string_view() : trim(text.substr(end));
  return number;
}

// 1000 for k, 10^6 for M ...; nothing for another letter.
std::optional<double> magnitude(char letter) {
  switch (letter | 0x20) {
    case 'k':
      return 1e3;
    case 'm':
      return 1e6;
    case 'g':
      return 1e9;
    case 't':
      return 1e12;
  }
  return std::nullopt;
}

bool equalIgnoringCase(std::string_view text, std::string_view lower) {
  if (text.size() != lower.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((text[i] | 0x20) != (lower[i] | 0x20)) return false;
  }
  return true;
}

}  // namespace

std::string formatCount(std::int64_t n) {
  std::string digits = std::to_string(n);
  const std::size_t first = digits[0] == '-' ? 1 : 0;
  for (std::size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

std::string formatBytes(double bytes) {
  static const char* const kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  while (std::fabs(bytes) >= 999.5 && unit < 4) {
    bytes /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.3g} {}", bytes, kUnits[unit]);
}

std::string formatSeconds(double seconds) {
  if (seconds < 1) return fmt::format("{:.0f} ms", seconds * 1000);
  if (seconds < 60) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
}

std::optional<double> parseBitRate(std::string_view text) {
  std::string_view unit;
  std::optional<double> rate = leadingNumber(trim(text), &unit);
  if (!rate) return std::nullopt;
  if (unit.ends_with("/s")) unit.remove_suffix(2);
  if (equalIgnoringCase(unit, "bit")) return rate;
  if (unit.empty() || !equalIgnoringCase(unit.substr(1), "bit")) return std::nullopt;
  const auto factor = magnitude(unit.front());
  if (!factor) return std::nullopt;
  return *rate * *factor;
}

std::optional<std::int64_t> parseCount(std::string_view text) {
  std::string_view unit;
  const std::optional<double> number = leadingNumber(trim(text), &unit);
  if (!number || unit.size() > 1) return std::nullopt;
  const auto factor = unit.empty() ? std::optional<double>(1) : magnitude(unit.front());
  if (!factor) return std::nullopt;
  // 25.6 times a million is not 25,600,000 to the last bit.
  const double value = std::round(*number * *factor);
  if (std::fabs(value - *number * *factor) > 1e-6 || value >= 0x1p53) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

}  // namespace trainyard
