#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/core/strings.h"
#include "base/http/metrics.h"
#include "base/process/files.h"
#include "fmt/format.h"

namespace trainyard {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr std::size_t kMaxProcBytes = 256 * 1024;

// /proc/self/stat after the name; field numbers of proc(5), minus 3.
constexpr std::size_t kUserTicks = 11;
constexpr std::size_t kSystemTicks = 12;
constexpr std::size_t kThreads = 17;
constexpr std::size_t kStartTicks = 19;
constexpr std::size_t kVirtualBytes = 20;
constexpr std::size_t kResidentPages = 21;

std::optional<double> bootTimeSeconds() {
  const StatusOr<std::string> text = readFile("/proc/stat", kMaxProcBytes);
  if (!text.ok()) return std::nullopt;
  for (const std::string_view line : split(*text, '\n')) {
    const auto [name, value] = splitFirst(line, ' ');
    if (name == "btime") return parseNumber<double>(trim(value));
  }
  return std::nullopt;
}

std::optional<double> openDescriptors() {
  DIR* folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return std::nullopt;
  int count = 0;
  while (const dirent* entry = ::readdir(folder)) count += entry->d_name[0] != '.' ? 1 : 0;
  ::closedir(folder);
  return count - 1;  // without the folder's own
}

class ProcessMetrics : public prometheus::Collectable {
 public:
  std::vector<MetricFamily> Collect() const override {
    std::vector<MetricFamily> families;
    collectStat(families);
    add(families, "process_open_fds", "Open file descriptors.", MetricType::Gauge,
        openDescriptors());
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
      add(families, "process_max_fds", "Limit of open file descriptors.", MetricType::Gauge,
          static_cast<double>(limit.rlim_cur));
    }
    return families;
  }

 private:
  static void add(std::vector<MetricFamily>& families, const char* name, const char* help,
                  MetricType type, std::optional<double> value) {
    if (!value.has_value()) return;
    families.push_back(makeFamily(name, help, type));
    addMetric(families.back(), {}, *value);
  }

  static void collectStat(std::vector<MetricFamily>& families) {
    const StatusOr<std::string> text = readFile("/proc/self/stat", kMaxProcBytes);
    if (!text.ok()) return;
    const std::size_t name_end = text->rfind(')');
    if (name_end == std::string::npos || name_end + 2 > text->size()) return;
    const auto fields = split(std::string_view(*text).substr(name_end + 2), ' ');
    if (fields.size() <= kResidentPages) return;
    const auto number = [&](std::size_t i) { return parseNumber<double>(fields[i]).value_or(0); };
    const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
    add(families, "process_cpu_seconds_total", "User and system CPU time spent.",
        MetricType::Counter, (number(kUserTicks) + number(kSystemTicks)) / ticks);
    add(families, "process_threads", "Threads.", MetricType::Gauge, number(kThreads));
    add(families, "process_virtual_memory_bytes", "Virtual memory.", MetricType::Gauge,
        number(kVirtualBytes));
    add(families, "process_resident_memory_bytes", "Resident memory.", MetricType::Gauge,
        number(kResidentPages) * static_cast<double>(::sysconf(_SC_PAGESIZE)));
    if (const auto boot = bootTimeSeconds()) {
      add(families, "process_start_time_seconds", "Start of the process, seconds since 1970.",
          MetricType::Gauge, *boot + number(kStartTicks) / ticks);
    }
  }
};

}  // namespace

std::shared_ptr<prometheus::Collectable> makeProcessMetrics() {
  return std::make_shared<ProcessMetrics>();
}

}  // namespace trainyard
