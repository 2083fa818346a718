// What KubeCluster writes.
#include <algorithm>
#include <optional>
#include <utility>

#include "base/core/log.h"
#include "base/core/rfc3339.h"
#include "base/core/rng.h"
#include "fmt/format.h"
#include "operator/kube/failure.h"
#include "operator/kube/finalizer.h"
#include "operator/kube/kube_cluster.h"
#include "operator/kube/mending.h"
#include "operator/kube/observe/observe.h"
#include "operator/kube/render/names.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxEventMessage = 1024;
// A pod does not start without them, and many are made at one time.
constexpr Duration kSharedBeforePod = std::chrono::seconds(10);
constexpr int kTurns = 1000;

// The word for what the apiserver said no to; empty for failures that pass by themselves.
std::string refusalReason(const Status& status) {
  if (absl::IsResourceExhausted(status)) return "QuotaExceeded";
  if (absl::IsInvalidArgument(status)) return "TemplateInvalid";
  if (absl::IsPermissionDenied(status)) return "CreationForbidden";
  return "";
}

// Whether the PodGroup, of `gang` tasks, is to have another size. One that asks for tasks which are
// no longer wanted is never placed; made smaller while they are there, it has them placed, too.
bool hasOtherGang(const JobObservation& seen, std::optional<int> gang) {
  const v1::JobSpec& spec = seen.job.spec();
  if (!gang || !spec.run_policy().has_scheduling_policy()) return false;
  const int tasks = spec.ps().replicas() + spec.worker().replicas();
  const bool others_left = std::cmp_less_equal(seen.tasks.size(), tasks);
  const int wanted = gangMembers(seen.job);
  return wanted > *gang || (wanted < *gang && others_left);
}

// Not cut inside a character.
std::string_view firstBytes(std::string_view text, std::size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0) == 0x80) --most;
  return text.substr(0, most);
}

}  // namespace

Status KubeCluster::mayWrite() const {
  if (options_.may_write()) return absl::OkStatus();
  return absl::UnavailableError("not the leader: nothing is written");
}

void KubeCluster::noteWritten(const JobKey& key, WriteMark Written::*kind, const Json& object) {
  const Reflector& reflector = kind == &Written::jobs   ? *jobs_
                               : kind == &Written::pods ? *pods_
                               : kind == &Written::maps ? *maps_
                                                        : *workloads_;
  const std::lock_guard lock(mutex_);
  const WriteMark mark = reflector.mark(objectVersion(object));
  WriteMark& newest = notes_[key].written.*kind;
  // Writes go side by side. After a new list versions may be lower ones.
  if (mark.lists > newest.lists || mark.version > newest.version) newest = mark;
}

void KubeCluster::noteRefusal(const JobKey& key, std::optional<TaskWait> refusal) {
  bool news = false;
  {
    const std::lock_guard lock(mutex_);
    std::optional<TaskWait>& held = notes_[key].refusal;
    news = held.has_value() != refusal.has_value() ||
           (held && (held->reason != refusal->reason || held->message != refusal->message));
    held = std::move(refusal);
  }
  if (news) notify(key);
}

void KubeCluster::noteRefusedWith(const JobKey& key, const Status& status) {
  if (const std::string reason = refusalReason(status); !reason.empty())
    noteRefusal(key, TaskWait{reason, std::string(status.message())});
}

// After ALREADY_EXISTS: the object when it is this job's own, else why the name is not free.
StatusOr<KubeCluster::Json> KubeCluster::ownObject(const KubeResource& resource,
                                                   const v1::TrainingJob& job,
                                                   const std::string& name) {
  const JobKey key = keyOf(job);
  TY_ASSIGN_OR_RETURN(Json object, client_.get(resource, key.ns, name));
  if (controllerUid(object) == job.metadata().uid()) return object;
  const std::string what = fmt::format("{} {} exists and is not of this job", resource.kind, name);
  // What a deleted job of the same name has left goes away by itself, unless it was left on
  // purpose.
  if (labelOf(object, kJobNameLabel).empty() || controllerUid(object).empty()) {
    noteRefusal(key, TaskWait{"NameConflict", what});
  }
  return absl::UnavailableError(what);
}

Status KubeCluster::mend(const KubeResource& resource, const JobKey& key, const Json& found,
                         const Json& patch) {
  if (patch.is_null()) return absl::OkStatus();
  return annotate(client_.patchMerge(resource, key.ns, objectKey(found).name, patch).status(),
                  resource.kind);
}

// `patchOf`: what one that is there lacks. In a turn it is thought to be there, and to try to
// create it would be a write for nothing.
Status KubeCluster::createOrMend(const KubeResource& resource, const v1::TrainingJob& job,
                                 const Json& wanted,
                                 Json (*patchOf)(const Json& found, const Json& wanted),
                                 Shared shared) {
  const JobKey key = keyOf(job);
  const std::string name = objectKey(wanted).name;
  if (shared != Shared::kBeforePods) {
    const StatusOr<Json> there = ownObject(resource, job, name);
    if (there.ok()) return mend(resource, key, *there, patchOf(*there, wanted));
    if (!absl::IsNotFound(there.status())) return annotate(there.status(), resource.kind);
  }
  const Status created = client_.create(resource, key.ns, wanted).status();
  if (!absl::IsAlreadyExists(created)) return annotate(created, resource.kind);
  TY_ASSIGN_OR_RETURN(const Json found, ownObject(resource, job, name));
  return mend(resource, key, found, patchOf(found, wanted));
}

Status KubeCluster::prepareMap(const v1::TrainingJob& job) {
  const JobKey key = keyOf(job);
  const PackedPtr map = mapOf(job);
  if (map == nullptr) {
    const std::string root = rootId(options_.root_secrets.front());
    const Json wanted = Json(renderMembership(job, std::nullopt, root));
    StatusOr<Json> created = client_.create(kConfigMaps, key.ns, wanted);
    if (created.ok()) noteWritten(key, &Written::maps, *created);
    if (!absl::IsAlreadyExists(created.status())) return created.status();
    return ownObject(kConfigMaps, job, membershipName(job)).status();
  }
  const std::string text = jobText(job);
  const Json data = map->unpack().value("data", Json::object());
  if (data.value(std::string(kJobFile), "") == text) return absl::OkStatus();
  Json patch;
  patch["metadata"]["resourceVersion"] = std::to_string(map->version());
  patch["data"][std::string(kJobFile)] = text;
  StatusOr<Json> patched = client_.patchMerge(kConfigMaps, key.ns, membershipName(job), patch);
  if (patched.ok()) noteWritten(key, &Written::maps, *patched);
  return internal::asAborted(patched.status());
}

// What all tasks of a job share; whoever comes while another one makes it waits for that.
Status KubeCluster::prepare(const v1::TrainingJob& job, Duration max_age, Shared shared) {
  const JobKey key = keyOf(job);
  const std::string wanted = job.metadata().uid() + jobText(job);
  {
    std::unique_lock lock(mutex_);
    prepared_.wait(lock, [&] { return !preparing_.contains(key); });
    const JobNotes& notes = notes_[key];
    const bool lately = notes.prepared_at && clock_.now() - *notes.prepared_at < max_age;
    if (lately && notes.prepared == wanted) return absl::OkStatus();
    preparing_.insert(key);
  }
  Status status = createShared(job, shared);
  const std::lock_guard lock(mutex_);
  if (status.ok()) {
    notes_[key].prepared = wanted;
    notes_[key].prepared_at = clock_.now();
  }
  preparing_.erase(key);
  prepared_.notify_all();
  return status;
}

// Jobs that an operator takes up when it starts have their turns spread over the time between two.
void KubeCluster::prepareWhenDue(const JobObservation& seen) {
  const std::string& state = seen.job.status().state();
  const bool goes = seen.job.metadata().has_deletion_timestamp();
  if (seen.tasks.empty() || goes || state == "Succeeded" || state == "Failed") return;
  const JobKey key = keyOf(seen.job);
  const TimePoint now = clock_.now();
  {
    const std::lock_guard lock(mutex_);
    JobNotes& notes = notes_[key];
    std::optional<TimePoint>& at = notes.prepared_at;
    if (!at) {
      const std::uint64_t turn = mixKey(0, toString(key)) % kTurns;
      at = now - options_.shared_every * static_cast<int>(turn) / kTurns;
    }
    if (!hasOtherGang(seen, notes.gang) && now - *at < options_.shared_every) return;
    // Whatever becomes of it: what fails is tried again in the next turn, or before a pod.
    at = now;
    notes.prepared.clear();
  }
  if (const Status status = prepare(seen.job, options_.shared_every, Shared::kInTurn); !status.ok())
    TY_WARN("{}: what its tasks share: {}", toString(key), status.ToString());
}

Status KubeCluster::createPodGroup(const v1::TrainingJob& job, Shared shared) {
  const auto& gang = options_.render.gang;
  if (!gang || !job.spec().run_policy().has_scheduling_policy()) return absl::OkStatus();
  const KubeResource& groups =
      gang->kind == GangScheduler::kVolcano ? kVolcanoPodGroups : kCoschedulingPodGroups;
  const Status made =
      createOrMend(groups, job, Json(renderPodGroup(job, gang->kind)), podGroupPatch, shared);
  if (made.ok()) {
    const std::lock_guard lock(mutex_);
    notes_[keyOf(job)].gang = gangMembers(job);
  }
  if (!absl::IsNotFound(made)) return made;
  const std::string what =
      fmt::format("the cluster has no podgroups.{}: is the scheduler {} installed?", groups.group,
                  gang->scheduler_name);
  noteRefusal(keyOf(job), TaskWait{"GangSchedulerMissing", what});
  return absl::UnavailableError(what);
}

Status KubeCluster::createShared(const v1::TrainingJob& job, Shared shared) {
  TY_RETURN_IF_ERROR(annotate(prepareMap(job), membershipName(job)));
  // Before any task.
  if (const auto& policy = options_.render.policy)
    TY_RETURN_IF_ERROR(createOrMend(kNetworkPolicies, job, Json(renderNetworkPolicy(job, *policy)),
                                    networkPolicyPatch, shared));
  TY_RETURN_IF_ERROR(createPodGroup(job, shared));
  TY_RETURN_IF_ERROR(createService(job, shared));
  TY_ASSIGN_OR_RETURN(const JobKeys keys, keysOf(keyOf(job)));
  const Json secret = Json(renderSecret(job, keys));
  const Status created = client_.create(kSecrets, keyOf(job).ns, secret).status();
  // Who may only create cannot look whose it is; the name holds the job's uid.
  return absl::IsAlreadyExists(created) ? Status() : annotate(created, kSecrets.kind);
}

Status KubeCluster::createTask(const v1::TrainingJob& job, const TaskKey& task,
                               std::uint32_t created) {
  TY_RETURN_IF_ERROR(mayWrite());
  const JobKey key = keyOf(job);
  TY_ASSIGN_OR_RETURN(nlohmann::ordered_json pod, renderPod(job, task, created, options_.render));
  TY_RETURN_IF_ERROR(placeByQuota(job, task.role, pod));
  if (const Status status = prepare(job, kSharedBeforePod, Shared::kBeforePods); !status.ok()) {
    noteRefusedWith(key, status);
    return status;
  }
  // A template's misspelt field is told of while nothing runs. Later it may be one that an older
  // apiserver took: the job goes on.
  TY_ASSIGN_OR_RETURN(const std::optional<v1::Membership> begun, recordedMembership(job));
  const auto unknown = begun ? UnknownFields::kDrop : UnknownFields::kStrict;
  if (const Status status = prepareClaims(job, task, unknown); !status.ok()) {
    noteRefusedWith(key, status);
    return status;
  }
  StatusOr<Json> made = client_.create(kPods, key.ns, Json(pod), unknown);
  if (made.ok()) {
    noteWritten(key, &Written::pods, *made);
    noteRefusal(key, std::nullopt);
    return absl::OkStatus();
  }
  if (absl::IsAlreadyExists(made.status())) {
    TY_RETURN_IF_ERROR(ownObject(kPods, job, podName(job, task)).status());
    return made.status();
  }
  noteRefusedWith(key, made.status());
  return made.status();
}

Status KubeCluster::removeFinalizer(const JobKey& key, const Json& pod) {
  const auto freed = removeResultFinalizer(client_, pod);
  if (!freed.ok()) return internal::asAborted(freed.status());
  if (*freed) noteWritten(key, &Written::pods, **freed);
  return absl::OkStatus();
}

Status KubeCluster::deleteTask(const v1::TrainingJob& job, const TaskKey& task,
                               std::uint32_t created) {
  TY_RETURN_IF_ERROR(mayWrite());
  TY_ASSIGN_OR_RETURN(const ObjectPtr pod, podOf(job, task, created));
  TY_RETURN_IF_ERROR(removeFinalizer(keyOf(job), *pod));
  return isTerminating(*pod) ? absl::OkStatus() : removePod(job, task, *pod, std::nullopt);
}

// Without a grace period the apiserver does not wait for the pod's kubelet.
Status KubeCluster::forgetTask(const v1::TrainingJob& job, const TaskKey& task,
                               std::uint32_t created) {
  TY_RETURN_IF_ERROR(mayWrite());
  TY_ASSIGN_OR_RETURN(const ObjectPtr pod, podOf(job, task, created));
  TY_RETURN_IF_ERROR(removeFinalizer(keyOf(job), *pod));
  return removePod(job, task, *pod, 0);
}

Status KubeCluster::removePod(const v1::TrainingJob& job, const TaskKey& task, const Json& pod,
                              std::optional<std::int64_t> grace_seconds) {
  DeleteQuery query;
  query.uid = objectUid(pod);
  query.grace_seconds = grace_seconds;
  StatusOr<Json> removed = client_.remove(kPods, keyOf(job).ns, podName(job, task), query);
  if (removed.ok()) {
    noteWritten(keyOf(job), &Written::pods, *removed);
    return absl::OkStatus();
  }
  // Another pod by now: this one is gone.
  if (absl::IsFailedPrecondition(removed.status())) return absl::NotFoundError(toString(task));
  return removed.status();
}

Status KubeCluster::releaseTask(const v1::TrainingJob& job, const TaskKey& task,
                                std::uint32_t created) {
  TY_RETURN_IF_ERROR(mayWrite());
  TY_ASSIGN_OR_RETURN(const ObjectPtr pod, podOf(job, task, created));
  return removeFinalizer(keyOf(job), *pod);
}

Status KubeCluster::deleteJob(const v1::TrainingJob& job) {
  TY_RETURN_IF_ERROR(mayWrite());
  const JobKey key = keyOf(job);
  DeleteQuery query;
  query.uid = job.metadata().uid();
  query.propagation = "Background";
  StatusOr<Json> removed = client_.remove(kTrainingJobs, key.ns, key.name, query);
  if (removed.ok() || absl::IsNotFound(removed.status())) return absl::OkStatus();
  return internal::asAborted(removed.status());
}

Status KubeCluster::publish(const v1::TrainingJob& job, const v1::Membership& membership) {
  TY_RETURN_IF_ERROR(mayWrite());
  if (membership.uid() != job.metadata().uid()) {
    return absl::FailedPreconditionError("the membership is of another job");
  }
  TY_ASSIGN_OR_RETURN(const std::optional<v1::Membership> recorded, recordedMembership(job));
  const std::int64_t last = recorded ? recorded->revision() : 0;
  if (recorded && last == membership.revision() &&
      membershipText(*recorded) == membershipText(membership)) {
    return absl::OkStatus();
  }
  if (membership.revision() != last + 1) {
    return absl::FailedPreconditionError(
        fmt::format("membership revision {} does not follow {}", membership.revision(), last));
  }
  const JobKey key = keyOf(job);
  TY_RETURN_IF_ERROR(publishNames(job, recorded, membership));
  const PackedPtr map = mapOf(job);
  StatusOr<Json> written;
  if (map == nullptr) {
    const std::string root = rootId(options_.root_secrets.front());
    written = client_.create(kConfigMaps, key.ns, Json(renderMembership(job, membership, root)));
  } else {
    Json patch;
    patch["metadata"]["resourceVersion"] = std::to_string(map->version());
    patch["data"][std::string(kMembershipFile)] = membershipText(membership);
    written = client_.patchMerge(kConfigMaps, key.ns, membershipName(job), patch);
  }
  if (written.ok()) noteWritten(key, &Written::maps, *written);
  return written.status();
}

Status KubeCluster::writeStatus(const v1::TrainingJob& job, const v1::JobStatus& status) {
  TY_RETURN_IF_ERROR(mayWrite());
  const JobKey key = keyOf(job);
  const Json patch = statusPatch(job, status);
  if (patch.empty()) return absl::OkStatus();
  StatusOr<Json> written = client_.patchMerge(kTrainingJobs, key.ns, key.name, patch, "status");
  if (written.ok()) noteWritten(key, &Written::jobs, *written);
  return written.status();
}

Status KubeCluster::recordEvent(const v1::TrainingJob& job, std::string_view type,
                                std::string_view reason, std::string_view message) {
  TY_RETURN_IF_ERROR(mayWrite());
  const v1::ObjectMeta& meta = job.metadata();
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = ++events_;
  }
  const UnixMillis now = clock_.unixMillis();
  const std::string time = formatRfc3339(now);
  Json event;
  // Unlike any other, also of another process.
  event["metadata"] = {{"name", fmt::format("{}.{:x}.{:x}", meta.name(), now, number)},
                       {"namespace", meta.namespace_()}};
  event["involvedObject"] = {{"apiVersion", "trainyard.dev/v1alpha1"},
                             {"kind", "TrainingJob"},
                             {"name", meta.name()},
                             {"namespace", meta.namespace_()},
                             {"uid", meta.uid()},
                             {"resourceVersion", meta.resource_version()}};
  event["type"] = type;
  event["reason"] = reason;
  event["message"] = firstBytes(message, kMaxEventMessage);
  event["source"] = {{"component", options_.reporter}};
  event["reportingComponent"] = options_.reporter;
  event["firstTimestamp"] = time;
  event["lastTimestamp"] = time;
  event["count"] = 1;
  return client_.create(kEvents, meta.namespace_(), std::move(event)).status();
}

void KubeCluster::pushFailed(const JobKey& key, const AgentEndpoint& agent, std::int64_t revision) {
  const std::string name = fmt::format("{}-{}", key.name, toString(agent.key));
  const ObjectPtr pod = pods_->store().get({key.ns, name});
  const auto seen = pod == nullptr ? std::nullopt : observePod(*pod);
  const std::string text = std::to_string(revision);
  if (!seen || seen->created != agent.created || isTerminating(*pod) || !mayWrite().ok()) return;
  if (annotationOf(*pod, kRevisionAnnotation) == text) return;
  Json patch;
  patch["metadata"]["uid"] = objectUid(*pod);
  patch["metadata"]["annotations"][std::string(kRevisionAnnotation)] = text;
  const StatusOr<Json> patched = client_.patchMerge(kPods, key.ns, name, patch);
  if (!patched.ok()) TY_DEBUG("annotate pod {}: {}", name, patched.status().ToString());
}

// Nobody records the end of pods whose job is gone: nothing holds them.
Status KubeCluster::freeOrphans(const JobKey& key, const std::string& live_uid) {
  std::vector<ObjectPtr> orphans;
  const auto owned = live_uid.empty() ? std::nullopt : std::optional(live_uid);
  for (const PackedPtr& packed : pods_->store().byName(toString(key), owned)) {
    const auto pod = std::make_shared<const Json>(packed->unpack());
    if (hasFinalizer(*pod, kResultFinalizer)) orphans.push_back(pod);
  }
  if (orphans.empty()) return absl::OkStatus();
  TY_RETURN_IF_ERROR(mayWrite());
  // The cache may be behind: only the apiserver knows.
  const StatusOr<Json> job = client_.get(kTrainingJobs, key.ns, key.name);
  if (!job.ok() && !absl::IsNotFound(job.status())) return job.status();
  const std::string owner = job.ok() ? objectUid(*job) : "";
  std::mutex mutex;
  Status first;
  helpers_.forEach(orphans.size(), kFreesAtOnce, [&](std::size_t i) {
    if (job.ok() && controllerUid(*orphans[i]) == owner) return true;
    const Status status = removeFinalizer(key, *orphans[i]);
    const std::lock_guard lock(mutex);
    first.Update(status);
    return true;
  });
  return annotate(first, "let go of a pod whose job is gone");
}

}  // namespace trainyard::control
