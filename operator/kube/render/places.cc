#include "operator/kube/render/internal/places.h"

#include <string>
#include <utility>

#include "operator/job/template.h"
#include "operator/kube/render/names.h"

namespace trainyard::control::internal {
namespace {

bool isGang(const v1::TrainingJob& job, const RenderOptions& options) {
  return options.gang && job.spec().run_policy().has_scheduling_policy();
}

Json spreadOver(const Json& labels) {
  return {{"maxSkew", 1},
          {"topologyKey", "kubernetes.io/hostname"},
          {"whenUnsatisfiable", "ScheduleAnyway"},
          {"labelSelector", {{"matchLabels", labels}}}};
}

// Servers send and receive more than workers do: on one node they share its link. Only a wish, and
// only where the template says nothing of where its pods go.
void spreadServers(const v1::TrainingJob& job, const TaskKey& task, Json& spec) {
  if (task.role != v1::ROLE_PS || job.spec().ps().replicas() < 2) return;
  if (has(spec, "affinity") || has(spec, "topologySpreadConstraints")) return;
  Json labels = Json::object();
  labels[std::string(kJobNameLabel)] = job.metadata().name();
  labels[std::string(kRoleLabel)] = roleName(v1::ROLE_PS);
  spec["topologySpreadConstraints"] = Json::array({spreadOver(labels)});
}

Json preferNear(const char* topology, int weight, const Json& labels) {
  return {{"weight", weight},
          {"podAffinityTerm",
           {{"topologyKey", topology}, {"labelSelector", {{"matchLabels", labels}}}}}};
}

// Ranks of a ring send what they have to each other in every step, and lose all progress together:
// near each other they are faster, and apart they are no safer. Without a ring workers talk to
// servers only. A wish, as above.
void gatherRanks(const v1::TrainingJob& job, const TaskKey& task, Json& spec) {
  const v1::JobSpec& wanted = job.spec();
  if (task.role != v1::ROLE_WORKER || wanted.strategy() != "AllReduce") return;
  if (wanted.worker().replicas() < 2) return;
  if (has(spec, "affinity") || has(spec, "topologySpreadConstraints")) return;
  Json labels = Json::object();
  labels[std::string(kJobNameLabel)] = job.metadata().name();
  labels[std::string(kRoleLabel)] = roleName(v1::ROLE_WORKER);
  spec["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] =
      Json::array({preferNear("kubernetes.io/hostname", 100, labels),
                   preferNear("topology.kubernetes.io/zone", 50, labels)});
  if (!isForeign(job)) return;
  // The pods of a Service, which such jobs have, are spread by the scheduler where they say nothing
  // themselves; that would outweigh the wish. Nobody else has this pod's index.
  labels[std::string(kIndexLabel)] = std::to_string(task.index);
  spec["topologySpreadConstraints"] = Json::array({spreadOver(labels)});
}

}  // namespace

void joinGang(const v1::TrainingJob& job, const RenderOptions& options, Json& meta) {
  if (!isGang(job, options)) return;
  if (options.gang->kind == GangScheduler::kVolcano) {
    objectIn(meta, "annotations")[std::string(kPodGroupAnnotation)] = podGroupName(job);
  } else {
    objectIn(meta, "labels")[std::string(kPodGroupLabel)] = podGroupName(job);
  }
}

void placePod(const v1::TrainingJob& job, const TaskKey& task, const RenderOptions& options,
              Json& spec) {
  spreadServers(job, task, spec);
  gatherRanks(job, task, spec);
  const v1::SchedulingPolicy& policy = job.spec().run_policy().scheduling_policy();
  if (isGang(job, options)) fill(spec, "schedulerName", options.gang->scheduler_name);
  if (policy.has_priority_class()) fill(spec, "priorityClassName", policy.priority_class());
}

}  // namespace trainyard::control::internal
