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
  if (spec.strategy() == "AllReduce" && spec.training().update().backup_workers() > 0) {
    return unsupported(
        "spec.training.update.backupWorkers",
        fmt::format("{} with strategy AllReduce", spec.training().update().backup_workers()));
  }
  const int processes = spec.worker().processes_per_pod();
  if (processes > 1 && !foreign && spec.strategy() != "AllReduce") {
    return unsupported("spec.worker.processesPerPod",
                       fmt::format("{} with strategy {}", processes, spec.strategy()));
  }
  // A program of the user's own cannot be told while it runs; ours is always told.
  const std::string on_change = onMembershipChange(job);
  if ((on_change == "Live") == foreign) {
    return unsupported("spec.worker.onMembershipChange",
                       on_change + (foreign ? " of a program of your own" : ""));
  }
  if (bringsModel(job)) return taskCommand(job, v1::ROLE_WORKER).status();
  return foreign ? checkForeign(job) : Status();
}

}  // namespace trainyard::control
