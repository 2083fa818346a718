// Small text helpers over std::string_view. (Debian's Abseil has a string_view of its own, so its
// functions do not take std::string_view; text is put together with fmt::format.)
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainyard {

inline absl::string_view toAbsl(std::string_view s) {
  return {s.data(), s.size()};
}
inline std::string_view fromAbsl(absl::string_view s) {
  return {s.data(), s.size()};
}

// "a,,b" -> {"a", "", "b"}; "" -> {""}.
std::vector<std::string_view> split(std::string_view text, char separator);
// At the first separator; the second part is empty where there is none.
std::pair<std::string_view, std::string_view> splitFirst(std::string_view text, char separator);
std::string join(const std::vector<std::string>& parts, std::string_view separator);
std::string_view trim(std::string_view text);

// The whole text as a decimal number, else nothing.
template <typename T>
std::optional<T> parseNumber(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace trainyard
