#include "base/process/cpus.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <thread>

#include "base/core/strings.h"
#include "base/process/files.h"
#include "base/process/internal/control_groups.h"
#include "fmt/format.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxFile = 1 << 20;

std::optional<double> limitOf(const internal::ControlGroup& group) {
  const char* const name = group.version == 1 ? "cpu.cfs_quota_us" : "cpu.max";
  const auto limit = readFile(group.folder / name, kMaxFile);
  if (!limit.ok()) return std::nullopt;
  if (group.version != 1) return coresOfCpuMax(*limit);
  const auto period = readFile(group.folder / "cpu.cfs_period_us", kMaxFile);
  return period.ok() ? coresOfQuota(*limit, *period) : std::nullopt;
}

}  // namespace

std::optional<double> coresOfQuota(std::string_view quota, std::string_view period) {
  const auto allowed = parseNumber<std::int64_t>(trim(quota));
  const auto of = parseNumber<std::int64_t>(trim(period));
  if (!allowed || !of || *allowed <= 0 || *of <= 0) return std::nullopt;
  return static_cast<double>(*allowed) / static_cast<double>(*of);
}

std::optional<double> coresOfCpuMax(std::string_view cpu_max) {
  const auto [quota, period] = splitFirst(trim(cpu_max), ' ');
  return coresOfQuota(quota, period);
}

int usableCores() {
  cpu_set_t set;
  // Fails on a machine of more than 1024 cores; the library knows that number by other means.
  const int count = ::sched_getaffinity(0, sizeof(set), &set) == 0
                        ? CPU_COUNT(&set)
                        : static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, count);
}

AvailableCpus availableCpus(int usable, const fs::path& root) {
  AvailableCpus cpus{static_cast<double>(usable), "of this machine"};
  const auto groups = readFile(root / "proc/self/cgroup", kMaxFile);
  if (!groups.ok()) return cpus;
  for (const internal::ControlGroup& group :
       internal::controlGroups(*groups, "cpu", root / "sys/fs/cgroup")) {
    const auto limit = limitOf(group);
    if (!limit || *limit >= cpus.cores) continue;
    cpus = {*limit, fmt::format("by the limit of {}", group.folder.string())};
  }
  return cpus;
}

}  // namespace trainyard
