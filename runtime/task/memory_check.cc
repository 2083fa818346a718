#include "runtime/task/memory_check.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <system_error>
#include <vector>

#include "base/process/memory.h"
#include "fmt/format.h"
#include "runtime/catalog/catalog.h"
#include "runtime/catalog/memory.h"
#include "runtime/optimizer/optimizer.h"
#include "runtime/task/options.h"

namespace trainyard::runtime {
namespace {

Status check(const std::string& who, const MemoryNeed& need) {
  const StatusOr<AvailableMemory> available = availableMemory();
  if (!available.ok()) return absl::OkStatus();
  return checkMemory(who, need.least(), need.text(), *available);
}

// Beside what it computes with.
void addMembersPart(const v1::TrainingJob& job, std::uint32_t index, std::int64_t weights,
                    int slots, MemoryNeed& need) {
  if (isRing(job)) {
    need.add(rankMemory(weights, slots, index == 0));
  } else if (index == 0 && job.spec().ps().replicas() == 1 && keepsReplicas(job.spec())) {
    need.add(replicaMemory(weights, slots));
  }
}

}  // namespace

Status checkWorkerMemory(const v1::TrainingJob& job, std::uint32_t index,
                         const std::array<int, 3>& shape, int classes, bool on_gpu) {
  const v1::JobSpec& spec = job.spec();
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
  TY_ASSIGN_OR_RETURN(const auto optimizer, makeOptimizer(spec.training().optimizer()));
  const auto slots = static_cast<int>(optimizer->slots().size());
  const std::int64_t weights = trainableBytes(variables);
  MemoryNeed need = workerMemory(model, variables, shape, on_gpu ? 0 : samplesPerWorker(spec));
  need.add(rowsMemory(spec.training(), samplesPerWorker(spec)));
  addMembersPart(job, index, weights, slots, need);
  return check(who, need);
}

Status checkDeclaredMemory(const v1::TrainingJob& job, std::uint32_t index,
                           const std::vector<Variable>& variables, bool own_update) {
  int slots = 0;
  if (!own_update) {
    TY_ASSIGN_OR_RETURN(const auto optimizer, makeOptimizer(job.spec().training().optimizer()));
    slots = static_cast<int>(optimizer->slots().size());
  }
  const std::int64_t weights = trainableBytes(variables);
  MemoryNeed need{{{"gradients", weights}}};
  addMembersPart(job, index, weights, slots, need);
  return check("the program's model on a worker", need);
}

Status checkServerMemory(const v1::JobSpec& spec, const Placement& placement, int ps, int slots) {
  std::vector<std::int64_t> held = placement.bytes_per_ps;
  if (ps >= placement.num_ps) {  // who joins later has about an even share
    const std::int64_t all = std::accumulate(held.begin(), held.end(), std::int64_t{0});
    held.assign(static_cast<std::size_t>(ps) + 1, all / (ps + 1));
  }
  return check(fmt::format("{} on a parameter server", spec.training().model().name()),
               serverMemory(serverLoads(spec, held)[static_cast<std::size_t>(ps)], slots));
}

}  // namespace trainyard::runtime
