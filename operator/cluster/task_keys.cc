#include "operator/cluster/task_keys.h"

#include <algorithm>
#include <iterator>

#include "base/core/strings.h"
#include "fmt/format.h"

namespace trainyard::control {

namespace {

constexpr std::size_t kIndicesMax = 65536;

void addRole(v1::Role role, std::int32_t replicas, const v1::RoleStatus& status,
             std::vector<TaskKey>* keys) {
  const auto wanted = static_cast<std::size_t>(std::max(0, replicas));
  std::set<std::uint32_t> indices = parseIndices(status.indices());
  indices.merge(parseIndices(status.finished_indices()));
  while (indices.size() > wanted) indices.erase(std::prev(indices.end()));
  for (std::uint32_t index = 0; indices.size() < wanted; ++index) indices.insert(index);
  for (const std::uint32_t index : indices) keys->push_back({role, index});
}

}  // namespace

std::string formatIndices(const std::set<std::uint32_t>& indices) {
  std::string text;
  for (auto it = indices.begin(); it != indices.end();) {
    const std::uint32_t first = *it;
    std::uint32_t last = first;
    for (++it; it != indices.end() && *it == last + 1; ++it) last = *it;
    if (!text.empty()) text += ',';
    text += first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
  }
  return text;
}

std::set<std::uint32_t> parseIndices(std::string_view text) {
  std::set<std::uint32_t> indices;
  if (text.empty()) return indices;
  for (const std::string_view part : split(text, ',')) {
    const auto [from, to] = splitFirst(part, '-');
    const auto first = parseNumber<std::uint32_t>(from);
    const auto last = to.empty() ? first : parseNumber<std::uint32_t>(to);
    if (!first || !last) continue;
    for (std::uint64_t i = *first; i <= *last && indices.size() < kIndicesMax; ++i) {
      indices.insert(static_cast<std::uint32_t>(i));
    }
  }
  return indices;
}

std::vector<TaskKey> wantedTasks(const v1::TrainingJob& job) {
  std::vector<TaskKey> keys;
  addRole(v1::ROLE_PS, job.spec().ps().replicas(), job.status().ps(), &keys);
  addRole(v1::ROLE_WORKER, job.spec().worker().replicas(), job.status().worker(), &keys);
  std::sort(keys.begin(), keys.end());
  return keys;
}

TaskKey coordinatorOf(const v1::JobSpec& spec) {
  return spec.strategy() == "AllReduce" ? TaskKey{v1::ROLE_WORKER, 0} : TaskKey{v1::ROLE_PS, 0};
}

}  // namespace trainyard::control
