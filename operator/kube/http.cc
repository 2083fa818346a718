#include "operator/kube/http.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/cord.h"

namespace trainyard::control {

namespace {

constexpr absl::string_view kMaybeUrl = "trainyard.dev/maybe-happened";

bool equalNoCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

}  // namespace

std::string_view HttpResponse::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (equalNoCase(key, name)) return value;
  }
  return {};
}

Status markMaybeHappened(Status status) {
  if (!status.ok()) status.SetPayload(kMaybeUrl, absl::Cord("1"));
  return status;
}

bool maybeHappened(const Status& status) {
  return status.GetPayload(kMaybeUrl).has_value();
}

}  // namespace trainyard::control
