#include "base/process/memory.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/core/strings.h"
#include "base/core/units.h"
#include "base/process/files.h"
#include "base/process/internal/control_groups.h"
#include "fmt/format.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxMemoryFile = 1 << 20;

std::optional<std::int64_t> numberIn(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

// The number after `key` at the start of a line.
std::optional<std::int64_t> fieldOf(std::string_view text, std::string_view key) {
  for (const std::string_view line : split(text, '\n')) {
    if (line.starts_with(key)) return numberIn(line.substr(key.size()));
  }
  return std::nullopt;
}

std::optional<std::int64_t> numberOfFile(const fs::path& path) {
  const auto text = readFile(path, kMaxMemoryFile);
  return text.ok() ? numberIn(*text) : std::nullopt;  // "max": no limit
}

// What the two versions call the same things.
struct GroupFiles {
  const char* limit;
  const char* usage;
  const char* cache;  // of memory.stat
};
constexpr GroupFiles kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache "};
constexpr GroupFiles kVersion2{"memory.max", "memory.current", "file "};

// By the limit of one group, if it has one.
void narrow(const fs::path& group, const GroupFiles& files, AvailableMemory& memory) {
  const auto limit = numberOfFile(group / files.limit);
  const auto usage = numberOfFile(group / files.usage);
  if (!limit || !usage) return;
  const auto stat = readFile(group / "memory.stat", kMaxMemoryFile);
  const std::int64_t cache = stat.ok() ? fieldOf(*stat, files.cache).value_or(0) : 0;
  // The two are not counted at the same moment: there may seem to be more cache than usage, and
  // "no limit" is nearly the largest number that there is.
  const std::int64_t used = std::max<std::int64_t>(0, *usage - cache);
  const std::int64_t left = std::max<std::int64_t>(0, *limit - used);
  memory.limit = std::min(memory.limit, *limit);
  if (left < memory.bytes) {
    memory.bytes = left;
    memory.source = fmt::format("limit of {}", group.string());
  }
}

}  // namespace

StatusOr<AvailableMemory> availableMemory(const fs::path& root) {
  const fs::path meminfo = root / "proc/meminfo";
  TY_ASSIGN_OR_RETURN(const std::string text, readFile(meminfo, kMaxMemoryFile));
  const auto available = fieldOf(text, "MemAvailable:");
  const auto total = fieldOf(text, "MemTotal:");
  if (!available || !total) return invalidInput(meminfo.string(), "no MemAvailable or MemTotal");
  AvailableMemory memory{*available * kKiB, *total * kKiB, "this machine"};
  const auto groups = readFile(root / "proc/self/cgroup", kMaxMemoryFile);
  if (!groups.ok()) return memory;
  for (const internal::ControlGroup& group :
       internal::controlGroups(*groups, "memory", root / "sys/fs/cgroup")) {
    narrow(group.folder, group.version == 1 ? kVersion1 : kVersion2, memory);
  }
  return memory;
}

Status checkMemory(const std::string& who, std::int64_t needed, const std::string& parts,
                   const AvailableMemory& available) {
  if (needed <= available.bytes) return absl::OkStatus();
  const auto bytes = [](std::int64_t n) { return formatBytes(static_cast<double>(n)); };
  const Status status = absl::ResourceExhaustedError(fmt::format(
      "{} needs at least {} of memory ({}), {} of {} are available ({})", who, bytes(needed), parts,
      bytes(available.bytes), bytes(available.limit), available.source));
  const bool might_fit = needed <= available.limit;
  return withClass(status, might_fit ? FailureClass::kRetry : FailureClass::kPermanent);
}

}  // namespace trainyard
