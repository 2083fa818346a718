#include "base/core/exit_code_set.h"

#include "base/core/strings.h"
#include "fmt/format.h"

namespace trainyard {

std::optional<ExitCodeSet> ExitCodeSet::parse(std::string_view text) {
  ExitCodeSet codes;
  int next = 0;  // they rise
  while (!text.empty()) {
    const std::string_view range = text.substr(0, text.find(','));
    const std::size_t dash = range.find('-');
    const auto first = parseNumber<int>(range.substr(0, dash));
    const auto last =
        dash == std::string_view::npos ? first : parseNumber<int>(range.substr(dash + 1));
    if (!first || !last || *first < next || *last < *first || *last > kLastExitCode)
      return std::nullopt;
    for (int code = *first; code <= *last; ++code) codes.add(code);
    next = *last + 1;
    if (range.size() == text.size()) return codes;
    text.remove_prefix(range.size() + 1);
    if (text.empty()) return std::nullopt;
  }
  return codes;
}

std::string ExitCodeSet::toString() const {
  std::string text;
  for (int first = 0; first <= kLastExitCode; ++first) {
    if (!has(first)) continue;
    int last = first;
    while (has(last + 1)) ++last;
    if (!text.empty()) text += ',';
    text += first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
    first = last;
  }
  return text;
}

}  // namespace trainyard
