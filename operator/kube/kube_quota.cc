// A job's place in a queue of Kueue, as KubeCluster sees and writes it.
#include "base/core/log.h"
#include "base/json/members.h"
#include "fmt/format.h"
#include "operator/kube/failure.h"
#include "operator/kube/kube_cluster.h"
#include "operator/kube/kueue/workload.h"
#include "operator/kube/observe/observe.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::json;

// Flavors say where pods go, and hardly ever change.
constexpr Duration kFlavorsFor = std::chrono::seconds(10);

}  // namespace

// Before the cache is complete only the apiserver knows, and it may well never be: a cluster
// without Kueue has no such objects.
StatusOr<ObjectPtr> KubeCluster::workloadOf(const v1::TrainingJob& job) {
  const JobKey key = keyOf(job);
  const std::string name = workloadName(job);
  ObjectPtr found;
  if (workloads_->hasSynced()) {
    found = workloads_->store().get({key.ns, name});
  } else {
    StatusOr<Json> asked = client_.get(kWorkloads, key.ns, name);
    if (absl::IsNotFound(asked.status())) return ObjectPtr();
    if (!asked.ok()) return annotate(asked.status(), "the job's Workload");
    found = std::make_shared<const Json>(*std::move(asked));
  }
  if (found == nullptr || controllerUid(*found) != job.metadata().uid() || isTerminating(*found))
    return ObjectPtr();
  const std::lock_guard lock(mutex_);
  const auto notes = notes_.find(key);
  const bool dropped = notes != notes_.end() && notes->second.dropped == objectUid(*found);
  return dropped ? ObjectPtr() : found;
}

StatusOr<std::optional<QuotaObservation>> KubeCluster::quotaOf(const v1::TrainingJob& job) {
  if (workloads_ == nullptr) return std::nullopt;
  if (queueOf(job).empty()) {
    // Its label was taken away: what it held is not for it any more.
    const ObjectKey name{job.metadata().namespace_(), workloadName(job)};
    if (workloads_->store().get(name) != nullptr) TY_RETURN_IF_ERROR(dropClaim(job));
    return std::nullopt;
  }
  TY_ASSIGN_OR_RETURN(const ObjectPtr workload, workloadOf(job));
  return readWorkload(job, workload == nullptr ? Json() : *workload);
}

StatusOr<PriorityClass> KubeCluster::priorityOf(const v1::TrainingJob& job) {
  PriorityClass priority = priorityClassOf(job);
  if (priority.name.empty()) return priority;
  const KubeResource& kind = priority.of_workloads ? kWorkloadPriorityClasses : kPriorityClasses;
  const StatusOr<Json> found = client_.get(kind, "", priority.name);
  if (absl::IsNotFound(found.status()))
    return absl::InvalidArgumentError(fmt::format("there is no {} {}", kind.kind, priority.name));
  if (!found.ok()) return annotate(found.status(), kind.kind);
  priority.value = numberAt(*found, "value");
  return priority;
}

// Why the job does not get into its queue, for people, and the failure again.
Status KubeCluster::notQueued(const v1::TrainingJob& job, const Status& status) {
  if (absl::IsNotFound(status)) {
    const std::string what =
        fmt::format("the cluster has no workloads.{}: is Kueue installed?", kWorkloads.group);
    noteRefusal(keyOf(job), TaskWait{"KueueMissing", what});
    return absl::UnavailableError(what);
  }
  if (absl::IsInvalidArgument(status) || absl::IsPermissionDenied(status))
    noteRefusal(keyOf(job), TaskWait{"WorkloadRefused", std::string(status.message())});
  return annotate(status, kWorkloads.kind);
}

Status KubeCluster::createWorkload(const v1::TrainingJob& job, const QuotaClaim& claim) {
  const StatusOr<PriorityClass> priority = priorityOf(job);
  if (!priority.ok()) return notQueued(job, priority.status());
  TY_ASSIGN_OR_RETURN(const Json wanted, renderWorkload(job, claim, *priority, options_.render));
  const JobKey key = keyOf(job);
  const StatusOr<Json> made = client_.create(kWorkloads, key.ns, wanted);
  // The cache shows it soon.
  if (absl::IsAlreadyExists(made.status())) return absl::AbortedError(made.status().message());
  if (!made.ok()) return notQueued(job, made.status());
  noteWritten(key, &Written::workloads, *made);
  noteRefusal(key, std::nullopt);
  return absl::OkStatus();
}

Status KubeCluster::patchWorkload(const v1::TrainingJob& job, const Json& patch,
                                  std::string_view subresource) {
  if (patch.is_null()) return absl::OkStatus();
  const JobKey key = keyOf(job);
  const StatusOr<Json> patched =
      client_.patchMerge(kWorkloads, key.ns, workloadName(job), patch, subresource);
  if (!patched.ok()) return annotate(internal::asAborted(patched.status()), kWorkloads.kind);
  noteWritten(key, &Written::workloads, *patched);
  return absl::OkStatus();
}

Status KubeCluster::claimQuota(const v1::TrainingJob& job, const QuotaClaim& claim) {
  TY_RETURN_IF_ERROR(mayWrite());
  TY_ASSIGN_OR_RETURN(const ObjectPtr workload, workloadOf(job));
  if (workload == nullptr) return createWorkload(job, claim);
  if (!readWorkload(job, *workload).held && claim.end == QuotaEnd::kOpen) {
    const StatusOr<PriorityClass> priority = priorityOf(job);
    if (!priority.ok()) return notQueued(job, priority.status());
    TY_ASSIGN_OR_RETURN(const Json wanted, renderWorkload(job, claim, *priority, options_.render));
    const Json patch = askPatch(*workload, wanted);
    if (!patch.is_null()) return patchWorkload(job, patch, "");
  }
  return patchWorkload(job, claimPatch(*workload, claim, clock_.unixMillis()), "status");
}

Status KubeCluster::giveQuotaBack(const v1::TrainingJob& job) {
  TY_RETURN_IF_ERROR(mayWrite());
  TY_ASSIGN_OR_RETURN(const ObjectPtr workload, workloadOf(job));
  if (workload == nullptr) return absl::OkStatus();
  return patchWorkload(job, giveBackPatch(*workload, clock_.unixMillis()), "status");
}

Status KubeCluster::dropClaim(const v1::TrainingJob& job) {
  TY_RETURN_IF_ERROR(mayWrite());
  TY_ASSIGN_OR_RETURN(const ObjectPtr workload, workloadOf(job));
  if (workload == nullptr) return absl::OkStatus();
  DeleteQuery query;
  query.uid = objectUid(*workload);
  const JobKey key = keyOf(job);
  const Status removed = client_.remove(kWorkloads, key.ns, workloadName(job), query).status();
  if (!removed.ok() && !absl::IsNotFound(removed)) return internal::asAborted(removed);
  // The answer does not say as of which version it is gone.
  const std::lock_guard lock(mutex_);
  notes_[key].dropped = query.uid;
  return absl::OkStatus();
}

StatusOr<Json> KubeCluster::flavor(const std::string& name) {
  const TimePoint now = clock_.now();
  {
    const std::lock_guard lock(mutex_);
    const auto known = flavors_.find(name);
    if (known != flavors_.end() && now - known->second.first < kFlavorsFor)
      return known->second.second;
  }
  TY_ASSIGN_OR_RETURN(const Json found, client_.get(kResourceFlavors, "", name));
  const std::lock_guard lock(mutex_);
  flavors_[name] = {now, member(found, "spec")};
  return member(found, "spec");
}

Status KubeCluster::placeByQuota(const v1::TrainingJob& job, v1::Role role,
                                 nlohmann::ordered_json& pod) {
  if (workloads_ == nullptr || queueOf(job).empty()) return absl::OkStatus();
  TY_ASSIGN_OR_RETURN(const ObjectPtr workload, workloadOf(job));
  if (workload == nullptr) return absl::OkStatus();
  std::map<std::string, Json> flavors;
  for (const std::string& name : flavorsOf(*workload, role)) {
    StatusOr<Json> one = flavor(name);
    if (!one.ok()) return annotate(one.status(), fmt::format("ResourceFlavor {}", name));
    flavors[name] = *std::move(one);
  }
  placeOnFlavors(*workload, role, flavors, pod);
  return absl::OkStatus();
}

}  // namespace trainyard::control
