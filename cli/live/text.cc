#include "cli/live/text.h"

#include <algorithm>
#include <cmath>

#include "base/core/units.h"
#include "fmt/format.h"

namespace trainyard::cli {
namespace {

bool startsCodePoint(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
}

const char* code(Tone tone) {
  switch (tone) {
    case Tone::kBold:
      return "1";
    case Tone::kDim:
      return "2";
    case Tone::kGood:
      return "32";
    case Tone::kWarn:
      return "33";
    case Tone::kBad:
      return "31";
    case Tone::kAccent:
      return "36";
    case Tone::kPlain:
      break;
  }
  return "0";
}

}  // namespace

int textWidth(std::string_view utf8) {
  return static_cast<int>(std::count_if(utf8.begin(), utf8.end(), startsCodePoint));
}

std::string fit(std::string_view utf8, int width) {
  if (textWidth(utf8) <= width) return std::string(utf8);
  if (width <= 0) return "";
  int columns = 0;
  std::size_t end = 0;
  for (; end < utf8.size(); ++end) {
    if (startsCodePoint(utf8[end]) && ++columns == width) break;
  }
  return std::string(utf8.substr(0, end)) + "…";
}

std::string padRight(std::string_view utf8, int width) {
  return std::string(utf8) + std::string(std::max(0, width - textWidth(utf8)), ' ');
}

std::string padLeft(std::string_view utf8, int width) {
  return std::string(std::max(0, width - textWidth(utf8)), ' ') + std::string(utf8);
}

std::string paint(std::string_view text, Tone tone, bool colour) {
  if (!colour || tone == Tone::kPlain || text.empty()) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", code(tone), text);
}

std::string progressBar(double part, int width, bool colour) {
  if (width <= 0) return "";
  const int full = static_cast<int>(std::floor(std::clamp(part, 0.0, 1.0) * width));
  std::string done, rest;
  for (int i = 0; i < full; ++i) done += "━";
  for (int i = full; i < width; ++i) rest += colour ? "━" : "─";
  return paint(done, Tone::kGood, colour) + paint(rest, Tone::kDim, colour);
}

std::string formatRate(double value) {
  if (value >= 99.95) return formatCount(std::llround(value));
  return fmt::format("{:.{}f}", value, value >= 9.995 ? 1 : 2);
}

std::string formatMeasure(double value) {
  const double size = std::fabs(value);
  if (size != 0 && (size < 0.001 || size >= 10000)) return fmt::format("{:.3g}", value);
  return fmt::format("{:.4f}", value);
}

}  // namespace trainyard::cli
