#include "base/core/base64.h"

#include <cstdint>

namespace trainyard {

namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

bool isSpace(char c) {
  return c == '\n' || c == '\r' || c == ' ' || c == '\t';
}

}  // namespace

std::string toBase64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  while (!bytes.empty()) {
    const std::size_t taken = bytes.size() < 3 ? bytes.size() : 3;
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      group = group << 8 | (i < taken ? static_cast<unsigned char>(bytes[i]) : 0u);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      text += i <= taken ? kAlphabet[group >> (18 - 6 * i) & 63] : '=';
    }
    bytes.remove_prefix(taken);
  }
  return text;
}

std::optional<std::string> fromBase64(std::string_view text) {
  std::string bytes;
  std::uint32_t group = 0;
  int digits = 0, padding = 0;
  for (const char c : text) {
    if (isSpace(c)) continue;
    const std::size_t value = kAlphabet.find(c);
    const bool pad = c == '=';  // nothing but padding comes after padding
    if (pad ? digits < 2 : value == std::string_view::npos || padding > 0) return std::nullopt;
    padding += pad;
    group = group << 6 | (pad ? 0u : static_cast<std::uint32_t>(value));
    if (++digits < 4) continue;
    for (int i = 0; i < 3 - padding; ++i) bytes += static_cast<char>(group >> (16 - 8 * i) & 255);
    digits = 0;
    group = 0;
  }
  if (digits != 0) return std::nullopt;
  return bytes;
}

}  // namespace trainyard
