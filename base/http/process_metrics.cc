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

constexpr std::size_t kMaxProcBytes = 256 * 1024;

// /proc/self/stat after the name; field numbers of proc(5), minus 3.
constexpr std::size_t kUserTicks = 11;
constexpr std::size_t kSystemTicks = 12;
constexpr std::size_t kThreadsField = 17;
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
    add(families, metric("process_open_fds"), openDescriptors());
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
      add(families, metric("process_max_fds"), static_cast<double>(limit.rlim_cur));
    }
    return families;
  }

 private:
  static void add(std::vector<MetricFamily>& families, const MetricSpec& spec,
                  std::optional<double> value) {
    if (!value.has_value()) return;
    families.push_back(makeFamily(spec));
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
    add(families, metric("process_cpu_seconds_total"),
        (number(kUserTicks) + number(kSystemTicks)) / ticks);
    add(families, metric("process_threads"), number(kThreadsField));
    add(families, metric("process_virtual_memory_bytes"), number(kVirtualBytes));
    add(families, metric("process_resident_memory_bytes"),
        number(kResidentPages) * static_cast<double>(::sysconf(_SC_PAGESIZE)));
    if (const auto boot = bootTimeSeconds()) {
      add(families, metric("process_start_time_seconds"), *boot + number(kStartTicks) / ticks);
    }
  }
};

}  // namespace

std::shared_ptr<prometheus::Collectable> makeProcessMetrics() {
  return std::make_shared<ProcessMetrics>();
}

}  // namespace trainyard
