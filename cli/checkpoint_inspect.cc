#include "cli/checkpoint_inspect.h"

#include <algorithm>
#include <ostream>

#include "base/core/exit_code.h"
#include "base/core/strings.h"
#include "base/core/units.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace trainyard::cli {
namespace {

std::string totalSize(const runtime::Manifest& manifest) {
  std::uint64_t bytes = 0;
  for (const auto& file : manifest.files) bytes += file.size;
  return formatBytes(static_cast<double>(bytes));
}

std::string age(UnixMillis then, UnixMillis now) {
  return now < then ? "-" : formatSeconds(static_cast<double>(now - then) / 1000);
}

std::string stateOf(const runtime::Manifest& manifest) {
  return manifest.base.empty() ? "ok" : fmt::format("ok, a delta of {}", manifest.base);
}

void printVariables(std::ostream& out, const runtime::Manifest& manifest) {
  out << fmt::format("\nstep {} of job {}: {} samples read of {} a pass, optimizer {}",
                     manifest.step, manifest.job_uid, formatCount(manifest.position),
                     formatCount(manifest.data_samples), manifest.optimizer);
  if (!manifest.slots.empty()) out << fmt::format(" (slots {})", fmt::join(manifest.slots, ", "));
  out << "\n";
  std::size_t width = 8;
  for (const auto& variable : manifest.variables) width = std::max(width, variable.name.size());
  out << fmt::format("{:<{}}  {:5}  {:>14}  SHAPE\n", "VARIABLE", width, "DTYPE", "BYTES");
  for (const auto& variable : manifest.variables) {
    out << fmt::format("{:<{}}  {:5}  {:>14}  [{}]\n", variable.name, width, variable.dtype,
                       formatCount(elements(variable) * 4), fmt::join(variable.shape, ", "));
  }
}

// How many rows there are is in the shards' files.
void printTables(std::ostream& out, const std::vector<runtime::ManifestTable>& tables) {
  if (tables.empty()) return;
  std::size_t width = 8;
  for (const auto& table : tables) width = std::max(width, table.name.size());
  out << fmt::format("{:<{}}  {:>5}  SLOTS\n", "TABLE", width, "DIM");
  for (const auto& table : tables) {
    out << fmt::format("{:<{}}  {:>5}  {}\n", table.name, width, table.dim,
                       table.slots.empty() ? "-" : fmt::format("{}", fmt::join(table.slots, ", ")));
  }
}

}  // namespace

int inspectCheckpoints(const Console& console, const std::string& dir,
                       const std::vector<runtime::Manifest>& manifests,
                       const std::vector<std::string>& problems, UnixMillis now) {
  bool sound = problems.empty();
  console.out << fmt::format("{}\n{:>10}  {:>6}  {:>5}  {:>10}  {:>8}  STATE\n", dir, "STEP",
                             "EPOCH", "FILES", "SIZE", "AGE");
  for (const runtime::Manifest& manifest : manifests) {
    const Status status = runtime::verifyFiles(dir, manifest);
    sound = sound && status.ok();
    console.out << fmt::format(
        "{:>10}  {:>6}  {:>5}  {:>10}  {:>8}  {}\n", manifest.step, manifest.epoch,
        manifest.files.size(), totalSize(manifest), age(manifest.unix_ms, now),
        status.ok() ? stateOf(manifest) : fmt::format("damaged: {}", fromAbsl(status.message())));
  }
  for (const std::string& problem : problems) console.out << "unreadable: " << problem << "\n";
  if (!manifests.empty()) {
    printVariables(console.out, manifests[0]);
    printTables(console.out, manifests[0].tables);
  }
  return sound ? kExitOk : kExitUsage;
}

}  // namespace trainyard::cli
