#include "operator/plan/internal/text.h"

#include "fmt/format.h"

namespace trainyard::control {

std::string formatMillis(UnixMillis at) {
  std::string text = formatRfc3339(at);  // ends in Z
  text.pop_back();
  return fmt::format("{}.{:03}Z", text, at % 1000);
}

}  // namespace trainyard::control
