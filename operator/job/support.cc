#include <string_view>

#include "fmt/format.h"
#include "operator/job/job.h"
#include "operator/job/template.h"

namespace trainyard::control {
namespace {

Status unsupported(std::string_view field, std::string_view what) {
  return absl::UnimplementedError(fmt::format("{}: {} is not in this release", field, what));
}

// A program of the user's own is told who belongs to the job when it starts, and not again.
Status checkForeign(const v1::TrainingJob& job) {
  if (job.spec().has_ps()) TY_RETURN_IF_ERROR(taskCommand(job, v1::ROLE_PS).status());
  return taskCommand(job, v1::ROLE_WORKER).status();
}

}  // namespace

Status checkSupported(const v1::TrainingJob& job) {
  const v1::JobSpec& spec = job.spec();
  const bool foreign = isForeign(job);
  if (!foreign && spec.has_strategy() && spec.strategy() != "ParameterServer") {
    return unsupported("spec.strategy", spec.strategy());
  }
  if (spec.storage().has_access() && spec.storage().access() != "Shared") {
    return unsupported("spec.storage.access", spec.storage().access());
  }
  const v1::WorkerSpec& worker = spec.worker();
  if (worker.has_processes_per_pod() && worker.processes_per_pod() != 1) {
    return unsupported("spec.worker.processesPerPod",
                       fmt::format("{}", worker.processes_per_pod()));
  }
  if (worker.has_on_membership_change() &&
      worker.on_membership_change() != (foreign ? "Restart" : "Live")) {
    return unsupported(
        "spec.worker.onMembershipChange",
        worker.on_membership_change() + (foreign ? " of a program of your own" : ""));
  }
  return foreign ? checkForeign(job) : Status();
}

}  // namespace trainyard::control
