// A job's Workload: what it asks of Kueue, and what Kueue says. Pure.
//
// Source: workload_types.go of kueue.x-k8s.io/v1beta1. What an integration has to write, and when,
// is as Kueue's own ones do it (v0.14, pkg/controller/jobframework/reconciler.go): the Workload is
// there before anything runs; the tasks run while it is Admitted and not Evicted; who was evicted
// takes its admission away itself, once its pods are gone.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "nlohmann/json.hpp"
#include "operator/cluster/cluster.h"
#include "operator/kube/render/render.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::control {

// Labels of a job, as Kueue reads them of all it queues.
inline constexpr std::string_view kQueueLabel = "kueue.x-k8s.io/queue-name";
inline constexpr std::string_view kPriorityLabel = "kueue.x-k8s.io/priority-class";

// "" of a job that waits in no queue.
std::string queueOf(const v1::TrainingJob& job);
std::string workloadName(const v1::TrainingJob& job);  // "trainingjob-<job>-<first 8 of its uid>"

// Where a job's priority comes from; the name is "" where it has none.
struct PriorityClass {
  std::string name;
  bool of_workloads = false;  // a WorkloadPriorityClass of Kueue, else a PriorityClass of pods
  int value = 0;
};
// Which one, without its value: the job's label, else what its templates name first.
PriorityClass priorityClassOf(const v1::TrainingJob& job);

// INVALID_ARGUMENT as renderPod().
StatusOr<nlohmann::json> renderWorkload(const v1::TrainingJob& job, const QuotaClaim& claim,
                                        const PriorityClass& priority,
                                        const RenderOptions& options);

// `workload` is null where the job has none.
QuotaObservation readWorkload(const v1::TrainingJob& job, const nlohmann::json& workload);

// JSON merge patches (RFC 7386) of the status, conditional on the version of `workload`; null:
// nothing is to be done. What is claimed beside how many tasks want room ...
nlohmann::json claimPatch(const nlohmann::json& workload, const QuotaClaim& claim, UnixMillis now);
// ... and that of the spec, of one that holds no quota.
nlohmann::json askPatch(const nlohmann::json& workload, const nlohmann::json& wanted);
nlohmann::json giveBackPatch(const nlohmann::json& workload, UnixMillis now);

// The ResourceFlavors that tasks of this role were granted.
std::set<std::string> flavorsOf(const nlohmann::json& workload, v1::Role role);
// Sends a pod where its job was granted quota: nodes and tolerations of those flavors, and what the
// admission checks want.
void placeOnFlavors(const nlohmann::json& workload, v1::Role role,
                    const std::map<std::string, nlohmann::json>& flavors,
                    nlohmann::ordered_json& pod);

// Leaves of a Workload what the functions above read.
void trimWorkload(nlohmann::json& workload);

}  // namespace trainyard::control
