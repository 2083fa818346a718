#include "cli/run/memory_check.h"

#include <cstdint>
#include <string>

#include "cli/plan/plan_report.h"
#include "fmt/format.h"
#include "runtime/catalog/catalog.h"
#include "runtime/catalog/memory.h"

namespace trainyard::cli {

Status checkJobMemory(const v1::TrainingJob& job, const AvailableMemory& available) {
  const v1::JobSpec& spec = job.spec();
  const v1::ModelSpec& model = spec.training().model();
  const runtime::InputShape input = runtime::impliedInput(spec.training());
  const auto variables = runtime::catalogVariables(model, input.shape, input.classes);
  const StatusOr<PlanReport> plan = makePlanReport(job);
  if (!variables.ok() || !plan.ok()) return absl::OkStatus();
  // What Auto will find is not known here.
  const bool on_gpu = spec.training().device() == "GPU";
  const runtime::MemoryNeed worker = runtime::workerMemory(
      model, *variables, input.shape, on_gpu ? 0 : runtime::samplesPerWorker(spec));
  std::int64_t servers = 0;
  for (const PsPlan& ps : plan->ps) servers += runtime::serverMemory(ps.held, plan->slots).bytes();
  runtime::MemoryNeed all;
  all.parts.push_back({fmt::format("{} parameter servers", plan->ps.size()), servers});
  all.parts.push_back({fmt::format("{} workers with {} each:", plan->workers, worker.text()),
                       plan->workers * worker.bytes()});
  return checkMemory(fmt::format("{} on this machine", model.name()), all.bytes(), all.text(),
                     available);
}

}  // namespace trainyard::cli
