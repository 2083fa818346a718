// Sources: KEP 42 of kubernetes-sigs/scheduler-plugins (PodGroup of scheduling.x-k8s.io/v1alpha1),
// and Volcano's scheduling.volcano.sh/v1beta1.
#include <algorithm>

#include "operator/kube/render/names.h"
#include "operator/kube/render/render.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::ordered_json;

Json coschedulingSpec(const v1::TrainingJob& job) {
  const v1::SchedulingPolicy& policy = job.spec().run_policy().scheduling_policy();
  Json spec = {{"minMember", gangMembers(job)}};
  if (policy.has_schedule_timeout_seconds())
    spec["scheduleTimeoutSeconds"] = policy.schedule_timeout_seconds();
  return spec;
}

Json volcanoSpec(const v1::TrainingJob& job) {
  const v1::SchedulingPolicy& policy = job.spec().run_policy().scheduling_policy();
  Json spec = {{"minMember", gangMembers(job)}};
  if (policy.has_queue()) spec["queue"] = policy.queue();
  if (policy.has_priority_class()) spec["priorityClassName"] = policy.priority_class();
  return spec;
}

}  // namespace

int gangMembers(const v1::TrainingJob& job) {
  const v1::JobSpec& spec = job.spec();
  const v1::WorkerSpec& worker = spec.worker();
  const int ps = spec.ps().has_min_replicas() ? spec.ps().min_replicas() : spec.ps().replicas();
  const int workers = worker.has_min_replicas() ? std::max(1, worker.min_replicas())
                                                : std::max(1, worker.replicas());
  const v1::SchedulingPolicy& policy = spec.run_policy().scheduling_policy();
  const int wanted = policy.has_min_available() ? policy.min_available() : ps + workers;
  return std::clamp(wanted, 1, std::max(1, spec.ps().replicas() + worker.replicas()));
}

Json renderPodGroup(const v1::TrainingJob& job, GangScheduler kind) {
  const bool volcano = kind == GangScheduler::kVolcano;
  Json group = renderObject("PodGroup", job, podGroupName(job));
  group["apiVersion"] = volcano ? "scheduling.volcano.sh/v1beta1" : "scheduling.x-k8s.io/v1alpha1";
  group["spec"] = volcano ? volcanoSpec(job) : coschedulingSpec(job);
  return group;
}

}  // namespace trainyard::control
