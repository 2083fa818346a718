// How many cores this process may compute on: what it is allowed to run on, and what the control
// groups around it (a container's CPU limit) allow.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace trainyard {

struct AvailableCpus {
  double cores = 1;    // above 0; a limit may be a part of one
  std::string source;  // "of this machine", or "by the limit of /sys/fs/cgroup"
};

// Those in the affinity of the calling thread (a container's cpuset narrows it), 1 or more.
int usableCores();

// The smallest of `usable` and the limits of the groups in ROOT/proc/self/cgroup, up to the root of
// what the process sees: cpu.max of version 2, cpu.cfs_quota_us and cpu.cfs_period_us of version 1
// below ROOT/sys/fs/cgroup. What cannot be read is taken for no limit.
AvailableCpus availableCpus(int usable, const std::filesystem::path& root = "/");

// Cores by the text of cpu.max: "150000 100000\n" is 1.5. Nothing for "max 100000", and for what is
// no limit.
std::optional<double> coresOfCpuMax(std::string_view cpu_max);
// Cores by the texts of cpu.cfs_quota_us and cpu.cfs_period_us. Nothing for a quota of -1, and for
// what is no limit.
std::optional<double> coresOfQuota(std::string_view quota, std::string_view period);

}  // namespace trainyard
