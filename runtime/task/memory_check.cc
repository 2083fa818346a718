#include "runtime/task/memory_check.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <system_error>

#include "base/process/memory.h"
#include "fmt/format.h"
#include "runtime/catalog/catalog.h"
#include "runtime/catalog/memory.h"

namespace trainyard::runtime {
namespace {

Status check(const std::string& who, const MemoryNeed& need) {
  const StatusOr<AvailableMemory> available = availableMemory();
  if (!available.ok()) return absl::OkStatus();
  return checkMemory(who, need.bytes(), need.text(), *available);
}

}  // namespace

Status checkWorkerMemory(const v1::JobSpec& spec, const std::array<int, 3>& shape, int classes,
                         bool on_gpu) {
  const v1::ModelSpec& model = spec.training().model();
  const std::string who = fmt::format("{} on a worker", model.name());
  if (!model.path().empty()) {
    std::error_code unreadable;  // whoever opens the file says so
    const auto size = std::filesystem::file_size(model.path(), unreadable);
    if (unreadable) return absl::OkStatus();
    const auto bytes = static_cast<std::int64_t>(size);
    return check(who, {{{"weights", bytes}, {"gradients", bytes}}});
  }
  TY_ASSIGN_OR_RETURN(const std::vector<Variable> variables,
                      catalogVariables(model, shape, classes));
  return check(who, workerMemory(model, variables, shape, on_gpu ? 0 : samplesPerWorker(spec)));
}

Status checkServerMemory(const v1::JobSpec& spec, const Placement& placement, int ps, int slots) {
  // Who joins later has about an even share.
  std::int64_t held = 0;
  for (const std::int64_t bytes : placement.bytes_per_ps) held += bytes;
  held /= std::max(placement.num_ps, ps + 1);
  if (ps < placement.num_ps) held = placement.bytes_per_ps[static_cast<std::size_t>(ps)];
  return check(fmt::format("{} on a parameter server", spec.training().model().name()),
               serverMemory(held, slots));
}

}  // namespace trainyard::runtime
