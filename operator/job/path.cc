#include "operator/job/internal/path.h"

#include <algorithm>
#include <cctype>

#include "base/core/strings.h"
#include "fmt/format.h"

namespace trainyard::control::internal {
namespace {

bool isPlainKey(std::string_view key) {
  return !key.empty() && std::all_of(key.begin(), key.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-';
  });
}

// Reads one step at the front of `rest` and removes it. `first`: a key stands without a dot.
StatusOr<PathStep> takeStep(std::string_view& rest, bool first) {
  PathStep step;
  if (rest.starts_with("[\"")) {
    const std::size_t end = rest.find("\"]", 2);
    if (end == std::string_view::npos) return absl::InvalidArgumentError("[\" without \"]");
    step.key = rest.substr(2, end - 2);
    rest.remove_prefix(end + 2);
    return step;
  }
  if (rest.front() == '[') {
    const std::size_t end = rest.find(']');
    const auto index = parseNumber<unsigned>(rest.substr(1, end == rest.npos ? end : end - 1));
    if (end == rest.npos || !index) {
      return absl::InvalidArgumentError("expected a list index such as [0]");
    }
    step.index = *index;
    step.is_index = true;
    rest.remove_prefix(end + 1);
    return step;
  }
  if (!first) {
    if (rest.front() != '.') return absl::InvalidArgumentError("expected '.' or '['");
    rest.remove_prefix(1);
  }
  const std::size_t end = std::min(rest.find_first_of(".["), rest.size());
  if (end == 0) return absl::InvalidArgumentError("an empty name");
  step.key = rest.substr(0, end);
  rest.remove_prefix(end);
  return step;
}

}  // namespace

std::string childPath(std::string_view parent, std::string_view key) {
  if (!isPlainKey(key)) return fmt::format("{}[\"{}\"]", parent, key);
  return parent.empty() ? std::string(key) : fmt::format("{}.{}", parent, key);
}

std::string childPath(std::string_view parent, std::size_t index) {
  return fmt::format("{}[{}]", parent, index);
}

StatusOr<std::vector<PathStep>> parsePath(std::string_view path) {
  if (path.empty()) return absl::InvalidArgumentError("an empty path");
  std::vector<PathStep> steps;
  for (std::string_view rest = path; !rest.empty();) {
    TY_ASSIGN_OR_RETURN(PathStep step, takeStep(rest, steps.empty()));
    steps.push_back(std::move(step));
  }
  return steps;
}

std::string formatPath(const std::vector<PathStep>& steps) {
  std::string path;
  for (const PathStep& step : steps) {
    path = step.is_index ? childPath(path, step.index) : childPath(path, step.key);
  }
  return path;
}

void Locations::set(const std::string& path, Location location) {
  auto below = by_path_.lower_bound(path);
  while (below != by_path_.end() && below->first.starts_with(path)) {
    const std::string_view rest = std::string_view(below->first).substr(path.size());
    const bool inside = path.empty() || rest.empty() || rest.front() == '.' || rest.front() == '[';
    below = inside ? by_path_.erase(below) : std::next(below);
  }
  by_path_[path] = std::move(location);
}

Location Locations::at(const std::string& path) const {
  auto steps = parsePath(path);
  while (steps.ok() && !steps->empty()) {
    const auto found = by_path_.find(formatPath(*steps));
    if (found != by_path_.end()) return found->second;
    steps->pop_back();
  }
  const auto document = by_path_.find("");
  return document == by_path_.end() ? Location{} : document->second;
}

}  // namespace trainyard::control::internal
