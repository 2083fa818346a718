// What a file has, as an error shows it.
#pragma once

#include <string>
#include <string_view>

#include "absl/strings/escaping.h"
#include "base/core/strings.h"
#include "fmt/format.h"

namespace trainyard::runtime::internal {

// In quotes, at most 80 bytes of it.
inline std::string shown(std::string_view text) {
  constexpr std::size_t kShownBytes = 80;
  const bool cut = text.size() > kShownBytes;
  return fmt::format("\"{}{}\"", absl::CHexEscape(toAbsl(text.substr(0, kShownBytes))),
                     cut ? "..." : "");
}

}  // namespace trainyard::runtime::internal
