#include "base/process/internal/control_groups.h"

#include <algorithm>
#include <string>

#include "base/core/strings.h"

namespace trainyard::internal {
namespace {

namespace fs = std::filesystem;

void addWithThoseAround(const fs::path& mount, std::string_view group, int version,
                        std::vector<ControlGroup>& groups) {
  fs::path folder = mount;
  std::vector<fs::path> inward = {folder};
  // Normal before it is relative: "/../a" is then "/a".
  for (const fs::path& part : fs::path(group).lexically_normal().relative_path()) {
    if (!part.empty()) inward.push_back(folder /= part);
  }
  for (auto path = inward.rbegin(); path != inward.rend(); ++path)
    groups.push_back({*path, version});
}

}  // namespace

std::vector<ControlGroup> controlGroups(std::string_view proc_self_cgroup,
                                        std::string_view controller, const fs::path& mount) {
  std::vector<ControlGroup> groups;
  for (const std::string_view line : split(proc_self_cgroup, '\n')) {
    // "0::/user.slice/a.scope", or "9:cpu,cpuacct:/docker/b" in version 1
    const auto [controllers, group] = splitFirst(splitFirst(line, ':').second, ':');
    if (!group.starts_with('/')) continue;
    if (controllers.empty()) {
      addWithThoseAround(mount, group, 2, groups);
      continue;
    }
    const std::vector<std::string_view> names = split(controllers, ',');
    if (std::find(names.begin(), names.end(), controller) == names.end()) continue;
    addWithThoseAround(mount / controller, group, 1, groups);
    // Several controllers in one place are usually linked to by their own names, too.
    if (names.size() > 1) addWithThoseAround(mount / controllers, group, 1, groups);
  }
  return groups;
}

}  // namespace trainyard::internal
