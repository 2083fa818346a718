#include "cli/run/memory_check.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "cli/plan/plan_report.h"
#include "fmt/format.h"
#include "runtime/catalog/catalog.h"
#include "runtime/catalog/memory.h"
#include "runtime/optimizer/optimizer.h"

namespace trainyard::cli {
namespace {

// Of all servers together, and of the worker that keeps an only one's replicas; nothing where the
// job cannot be planned, which is told elsewhere.
runtime::MemoryNeed serversMemory(const v1::TrainingJob& job) {
  runtime::MemoryNeed need;
  const StatusOr<PlanReport> plan = makePlanReport(job);
  if (!plan.ok()) return need;
  std::int64_t bytes = 0;
  for (const runtime::ServerLoad& load :
       runtime::serverLoads(job.spec(), plan->placement.bytes_per_ps))
    bytes += runtime::serverMemory(load, plan->slots).least();
  need.parts.push_back({fmt::format("{} parameter servers", plan->ps.size()), bytes});
  if (plan->worker_replicas > 0)
    need.parts.push_back({"an only server's replicas", plan->worker_replicas});
  return need;
}

}  // namespace

Status checkJobMemory(const v1::TrainingJob& job, const AvailableMemory& available) {
  const v1::JobSpec& spec = job.spec();
  const v1::ModelSpec& model = spec.training().model();
  const runtime::InputShape input = runtime::impliedInput(spec.training());
  const auto variables = runtime::catalogVariables(model, input.shape, input.classes);
  const auto optimizer = runtime::makeOptimizer(spec.training().optimizer());
  if (!variables.ok() || !optimizer.ok()) return absl::OkStatus();
  const int slots = static_cast<int>((*optimizer)->slots().size());
  const std::int64_t weights = runtime::trainableBytes(*variables);
  // What Auto will find is not known here.
  const bool on_gpu = spec.training().device() == "GPU";
  runtime::MemoryNeed worker = runtime::workerMemory(model, *variables, input.shape,
                                                     on_gpu ? 0 : runtime::samplesPerWorker(spec));
  runtime::MemoryNeed all;
  if (spec.strategy() == "AllReduce") {
    worker.add(runtime::rankMemory(weights, slots, /*writes=*/false));
    all.parts.push_back({"a copy for a checkpoint", (1 + slots) * weights});
  } else {
    all = serversMemory(job);
    if (all.parts.empty()) return absl::OkStatus();
  }
  const int workers = spec.worker().replicas() * std::max(1, spec.worker().processes_per_pod());
  all.parts.push_back(
      {fmt::format("{} workers with {} each:", workers, worker.text()), workers * worker.least()});
  return checkMemory(fmt::format("{} on this machine", model.name()), all.least(), all.text(),
                     available);
}

}  // namespace trainyard::cli
