// Tasks as people write them.
#pragma once

#include <string>

#include "fmt/format.h"
#include "trainyard/v1/membership.pb.h"

namespace trainyard::runtime {

inline std::string taskName(v1::Role role, std::uint32_t index) {
  return fmt::format("{}-{}", role == v1::ROLE_PS ? "ps" : "worker", index);
}

}  // namespace trainyard::runtime
