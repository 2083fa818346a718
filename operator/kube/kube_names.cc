// By which names tasks of a user's own program find one another: a Service of the job and, as
// Kubernetes would write one for nearly every pod that gets an address, EndpointSlices of our own
// that hold all addresses at once.
#include <algorithm>
#include <utility>
#include <vector>

#include "operator/job/template.h"
#include "operator/kube/kube_cluster.h"
#include "operator/kube/mending.h"
#include "operator/kube/render/names.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::json;

std::vector<Json> slicesOf(const v1::TrainingJob& job,
                           const std::optional<v1::Membership>& membership) {
  std::vector<Json> slices;
  if (!membership) return slices;
  for (const auto& slice : renderEndpointSlices(job, *membership)) slices.emplace_back(slice);
  return slices;
}

}  // namespace

Status KubeCluster::createService(const v1::TrainingJob& job, Shared shared) {
  if (!isForeign(job)) return absl::OkStatus();
  TY_RETURN_IF_ERROR(createOrMend(kServices, job, Json(renderService(job)), servicePatch, shared));
  if (shared == Shared::kBeforePods) return absl::OkStatus();
  TY_ASSIGN_OR_RETURN(const std::optional<v1::Membership> recorded, recordedMembership(job));
  return recorded ? writeNames(job, recorded, *recorded) : absl::OkStatus();
}

// Before the members are told of one another, who then look the names up.
Status KubeCluster::publishNames(const v1::TrainingJob& job,
                                 const std::optional<v1::Membership>& recorded,
                                 const v1::Membership& membership) {
  const JobKey key = keyOf(job);
  const Status status = writeNames(job, recorded, membership);
  if (!status.ok()) noteRefusedWith(key, status);
  bool refused_before = false;
  {
    const std::lock_guard lock(mutex_);
    refused_before = std::exchange(notes_[key].names_refused, !status.ok());
  }
  if (status.ok() && refused_before) noteRefusal(key, std::nullopt);
  return status;
}

Status KubeCluster::writeNames(const v1::TrainingJob& job,
                               const std::optional<v1::Membership>& recorded,
                               const v1::Membership& membership) {
  if (!isForeign(job)) return absl::OkStatus();
  const Shared shared = recorded ? Shared::kInTurn : Shared::kBeforePods;
  if (recorded) {
    // Of a former release: Kubernetes knows the pods by the selector.
    const StatusOr<Json> service = ownObject(kServices, job, serviceName(job));
    if (service.ok() && service->contains(Json::json_pointer("/spec/selector")))
      return absl::OkStatus();
  }
  std::vector<Json> slices = slicesOf(job, membership);
  const auto isIn = [](const std::vector<Json>& all, const Json& slice) {
    return std::ranges::any_of(all,
                               [&](const Json& one) { return objectKey(one) == objectKey(slice); });
  };
  for (Json& former : slicesOf(job, recorded)) {
    if (isIn(slices, former)) continue;
    former["endpoints"] = Json::array();
    slices.push_back(std::move(former));
  }
  for (const Json& slice : slices)
    TY_RETURN_IF_ERROR(createOrMend(kEndpointSlices, job, slice, endpointSlicePatch, shared));
  return absl::OkStatus();
}

}  // namespace trainyard::control
