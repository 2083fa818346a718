#include <string_view>

#include "fmt/format.h"
#include "operator/job/job.h"

namespace trainyard::control {
namespace {

Status unsupported(std::string_view field, std::string_view what) {
  return absl::UnimplementedError(fmt::format("{}: {} is not in this release", field, what));
}

Status checkTraining(const v1::Training& training) {
  const bool computes = training.model().simulated_step_seconds() <= 0;
  if (computes && training.model().name() == "vgg19") {
    return unsupported("spec.training.model.name", "training vgg19");
  }
  if (training.model().name() == "torchscript") {
    return unsupported("spec.training.model.name", "training torchscript models");
  }
  return {};
}

}  // namespace

Status checkSupported(const v1::TrainingJob& job) {
  const v1::JobSpec& spec = job.spec();
  if (spec.has_strategy() && spec.strategy() != "ParameterServer") {
    return unsupported("spec.strategy", spec.strategy());
  }
  if (!spec.has_training()) {
    return unsupported("spec.training", "running a program of your own (a job without it)");
  }
  if (spec.storage().has_access() && spec.storage().access() != "Shared") {
    return unsupported("spec.storage.access", spec.storage().access());
  }
  const v1::WorkerSpec& worker = spec.worker();
  if (worker.has_processes_per_pod() && worker.processes_per_pod() != 1) {
    return unsupported("spec.worker.processesPerPod",
                       fmt::format("{}", worker.processes_per_pod()));
  }
  if (worker.has_on_membership_change() && worker.on_membership_change() != "Live") {
    return unsupported("spec.worker.onMembershipChange", worker.on_membership_change());
  }
  return checkTraining(spec.training());
}

}  // namespace trainyard::control
