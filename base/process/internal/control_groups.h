// Where the limits of this process's control groups lie: both versions, for what reads them.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace trainyard::internal {

struct ControlGroup {
  std::filesystem::path folder;
  int version = 2;  // which decides what its files are called
};

// The groups of a controller ("memory", "cpu") in the text of /proc/self/cgroup, each followed by
// those around it up to `mount`, where version 2 is mounted, or version 1's controllers by their
// names. Pure: a folder may not be there. A process outside of its namespace's root ("/../a") is
// taken to be in it, as far as it can see.
std::vector<ControlGroup> controlGroups(std::string_view proc_self_cgroup,
                                        std::string_view controller,
                                        const std::filesystem::path& mount);

}  // namespace trainyard::internal
