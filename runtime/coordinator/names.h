// Tasks as people write them.
#pragma once

#include <string>

#include "fmt/format.h"
#include "trainyard/v1/membership.pb.h"

namespace trainyard::runtime {

inline std::string taskName(v1::Role role, std::uint32_t index) {
  return fmt::format("{}-{}", role == v1::ROLE_PS ? "ps" : "worker", index);
}

// A worker of several processes: "worker-1.0" is the first one of worker 1. They are numbered
// through the workers.
inline std::string memberName(v1::Role role, std::uint32_t index, int processes) {
  if (role != v1::ROLE_WORKER || processes <= 1) return taskName(role, index);
  const auto each = static_cast<std::uint32_t>(processes);
  return fmt::format("{}.{}", taskName(role, index / each), index % each);
}

}  // namespace trainyard::runtime
