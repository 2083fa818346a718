// PersistentVolumeClaims of tasks, as KubeCluster makes, finds and drops them.
#include <algorithm>
#include <iterator>

#include "base/core/log.h"
#include "base/core/strings.h"
#include "base/json/members.h"
#include "fmt/format.h"
#include "operator/cluster/volume_claims.h"
#include "operator/kube/failure.h"
#include "operator/kube/kube_cluster.h"
#include "operator/kube/observe/observe.h"
#include "operator/kube/render/names.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::json;

// Of whom a claim is: a job, by its name, and a task of it.
constexpr std::string_view kOwnLabels[] = {kJobNameLabel, kRoleLabel, kIndexLabel};

// Nothing where the claim is of no task.
std::optional<TaskKey> taskOf(const Json& claim) {
  return parseTaskKey(
      fmt::format("{}-{}", labelOf(claim, kRoleLabel), labelOf(claim, kIndexLabel)));
}

// One that a job has made, and whose controller, if it has one, it is. A claim that was kept is
// that of the next job of the name.
bool isOfJob(const Json& claim, const v1::TrainingJob& job) {
  const std::string owner = controllerUid(claim);
  return labelOf(claim, kJobNameLabel) == job.metadata().name() &&
         (owner.empty() || owner == job.metadata().uid());
}

// Why the claim of that name is not for the task, if it is not.
std::optional<TaskWait> whyNot(const Json& found, const Json& wanted, const v1::TrainingJob& job) {
  const std::string name = objectKey(wanted).name;
  const auto same = [&](std::string_view label) {
    return labelOf(found, label) == labelOf(wanted, label);
  };
  if (!std::all_of(std::begin(kOwnLabels), std::end(kOwnLabels), same)) {
    return TaskWait{
        "NameConflict",
        fmt::format("PersistentVolumeClaim {} exists and is not of this task; it is once "
                    "it has the labels {}={}, {}={}, {}={}",
                    name, kOwnLabels[0], labelOf(wanted, kOwnLabels[0]), kOwnLabels[1],
                    labelOf(wanted, kOwnLabels[1]), kOwnLabels[2], labelOf(wanted, kOwnLabels[2]))};
  }
  // It goes by itself: with the job of this name that was deleted, or as its user wants it.
  if (isTerminating(found) || !isOfJob(found, job)) {
    return TaskWait{"VolumeClaimLeaves",
                    fmt::format("PersistentVolumeClaim {} is being deleted", name)};
  }
  return std::nullopt;
}

// What makes its owners those that are wanted: of the controllers this job or none. Null: nothing.
Json ownersPatch(const Json& found, const Json& wanted, const v1::TrainingJob& job) {
  const bool owned = !controllerUid(found).empty();
  const Json& ours = member(member(wanted, "metadata"), "ownerReferences");
  if (owned == !ours.is_null()) return Json();
  Json owners = Json::array();
  for (const Json& owner : member(member(found, "metadata"), "ownerReferences")) {
    if (textAt(owner, "uid") != job.metadata().uid()) owners.push_back(owner);
  }
  for (const Json& owner : ours) owners.push_back(owner);
  Json patch;
  patch["metadata"]["resourceVersion"] = std::to_string(objectVersion(found));
  patch["metadata"]["ownerReferences"] = std::move(owners);
  return patch;
}

}  // namespace

Status KubeCluster::prepareClaim(const v1::TrainingJob& job, const Json& wanted,
                                 UnknownFields unknown) {
  const JobKey key = keyOf(job);
  const Status made = client_.create(kPersistentVolumeClaims, key.ns, wanted, unknown).status();
  if (!absl::IsAlreadyExists(made)) return made;
  const std::string name = objectKey(wanted).name;
  TY_ASSIGN_OR_RETURN(const Json found, client_.get(kPersistentVolumeClaims, key.ns, name));
  if (auto why = whyNot(found, wanted, job)) {
    const Status status = absl::UnavailableError(why->message);
    noteRefusal(key, std::move(why));
    return status;
  }
  const Json patch = ownersPatch(found, wanted, job);
  if (patch.is_null()) return absl::OkStatus();
  return internal::asAborted(
      client_.patchMerge(kPersistentVolumeClaims, key.ns, name, patch).status());
}

Status KubeCluster::prepareClaims(const v1::TrainingJob& job, const TaskKey& task,
                                  UnknownFields unknown) {
  const auto wanted = renderClaims(job, task);
  if (wanted.empty()) return absl::OkStatus();
  for (const auto& claim : wanted)
    TY_RETURN_IF_ERROR(
        annotate(prepareClaim(job, Json(claim), unknown), kPersistentVolumeClaims.kind));
  const std::lock_guard lock(mutex_);
  if (auto& claims = notes_[keyOf(job)].claims) claims->insert(task);
  return absl::OkStatus();
}

StatusOr<std::vector<KubeCluster::Json>> KubeCluster::listClaims(const v1::TrainingJob& job) {
  const JobKey key = keyOf(job);
  const ListQuery query{key.ns, fmt::format("{}={}", kJobNameLabel, key.name), ""};
  TY_ASSIGN_OR_RETURN(ListPage page, client_.list(kPersistentVolumeClaims, query));
  std::erase_if(page.items, [&](const Json& claim) {
    return !isOfJob(claim, job) || isTerminating(claim) || !taskOf(claim);
  });
  return std::move(page.items);
}

// Asked for once; from then on it is known what becomes of them. A claim that somebody else deletes
// meanwhile is found gone when it is to be dropped.
std::vector<TaskKey> KubeCluster::claimsOf(const v1::TrainingJob& job) {
  const v1::JobSpec& spec = job.spec();
  if (!claimsGoWithTheTask(spec, v1::ROLE_PS) && !claimsGoWithTheTask(spec, v1::ROLE_WORKER))
    return {};
  const JobKey key = keyOf(job);
  {
    const std::lock_guard lock(mutex_);
    const JobNotes& notes = notes_[key];
    if (notes.claims && notes.claims_of == job.metadata().uid())
      return {notes.claims->begin(), notes.claims->end()};
  }
  const auto found = listClaims(job);
  if (!found.ok()) {  // no reason to leave the job alone
    TY_WARN("{}: its PersistentVolumeClaims: {}", toString(key), found.status().ToString());
    return {};
  }
  std::set<TaskKey> claims;
  for (const Json& claim : *found) claims.insert(*taskOf(claim));
  const std::lock_guard lock(mutex_);
  notes_[key].claims = claims;
  notes_[key].claims_of = job.metadata().uid();
  return {claims.begin(), claims.end()};
}

// Also those of former templates.
Status KubeCluster::dropVolumeClaims(const v1::TrainingJob& job, const TaskKey& task) {
  TY_RETURN_IF_ERROR(mayWrite());
  const JobKey key = keyOf(job);
  TY_ASSIGN_OR_RETURN(const std::vector<Json> claims, listClaims(job));
  for (const Json& claim : claims) {
    if (taskOf(claim) != task) continue;
    DeleteQuery query;
    query.uid = objectUid(claim);
    const Status gone =
        client_.remove(kPersistentVolumeClaims, key.ns, objectKey(claim).name, query).status();
    // Another one by now: this one is gone.
    if (!gone.ok() && !absl::IsNotFound(gone) && !absl::IsFailedPrecondition(gone))
      return annotate(gone, kPersistentVolumeClaims.kind);
  }
  {
    const std::lock_guard lock(mutex_);
    if (auto& known = notes_[key].claims) known->erase(task);
  }
  notify(key);
  return absl::OkStatus();
}

}  // namespace trainyard::control
