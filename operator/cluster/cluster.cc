#include "operator/cluster/cluster.h"

#include <utility>

#include "base/core/strings.h"
#include "fmt/format.h"

namespace trainyard::control {

std::string_view roleName(v1::Role role) {
  return role == v1::ROLE_PS ? "ps" : "worker";
}

std::string toString(const TaskKey& key) {
  return fmt::format("{}-{}", roleName(key.role), key.index);
}

std::optional<TaskKey> parseTaskKey(std::string_view text) {
  const auto [role, index] = splitFirst(text, '-');
  const auto number = parseNumber<std::uint32_t>(index);
  if (!number) return std::nullopt;
  if (role == "ps") return TaskKey{v1::ROLE_PS, *number};
  if (role == "worker") return TaskKey{v1::ROLE_WORKER, *number};
  return std::nullopt;
}

JobKey keyOf(const v1::TrainingJob& job) {
  return {job.metadata().namespace_(), job.metadata().name()};
}

std::string toString(const JobKey& key) {
  return fmt::format("{}/{}", key.ns, key.name);
}

JobKey parseJobKey(std::string_view text) {
  const auto [ns, name] = splitFirst(text, '/');
  return {std::string(ns), std::string(name)};
}

}  // namespace trainyard::control
