// A field of a job that is a number.
#pragma once

#include <cstdint>
#include <string>

#include "base/core/status.h"
#include "fmt/format.h"

namespace trainyard::runtime::internal {

inline Status checkRange(const std::string& field, std::int64_t value, std::int64_t low,
                         std::int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return invalidInput(field, fmt::format("{}, expected {} to {}", value, low, high));
}

}  // namespace trainyard::runtime::internal
