#include "operator/kube/kueue/workload.h"

#include <algorithm>

#include "base/core/rfc3339.h"
#include "base/core/rng.h"
#include "base/json/members.h"
#include "fmt/format.h"
#include "operator/cache/reflector.h"
#include "operator/job/template.h"
#include "operator/kube/observe/observe.h"
#include "operator/kube/render/names.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::json;

// What of the job a Workload was made of, to see when that has changed.
constexpr std::string_view kAskedAnnotation = "trainyard.dev/asked";

std::string labelOfJob(const v1::TrainingJob& job, std::string_view name) {
  const auto& labels = job.metadata().labels();
  const auto found = labels.find(std::string(name));
  return found == labels.end() ? "" : found->second;
}

std::string askedOf(const v1::TrainingJob& job) {
  std::uint64_t key = mixKey(0, queueOf(job));
  key = mixKey(key, labelOfJob(job, kPriorityLabel));
  for (const v1::Role role : {v1::ROLE_PS, v1::ROLE_WORKER})
    key = mixKey(key, templateText(job, role));
  const v1::SchedulingPolicy& policy = job.spec().run_policy().scheduling_policy();
  if (policy.has_priority_class()) key = mixKey(key, policy.priority_class());
  return fmt::format("{:016x}", key);
}

std::string nameOf(v1::Role role) {
  return std::string(roleName(role));
}

// What Kueue counts, and matches with nodes.
Json podSetTemplate(const Json& pod) {
  Json spec = Json::object();
  const Json& given = member(pod, "spec");
  for (const char* field : {"nodeSelector", "affinity", "tolerations", "overhead",
                            "runtimeClassName", "priorityClassName"}) {
    if (given.contains(field)) spec[field] = given[field];
  }
  for (const char* list : {"containers", "initContainers"}) {
    for (const Json& container : member(given, list)) {
      Json& kept = spec[list].emplace_back(Json::object());
      for (const char* field : {"name", "image", "resources", "restartPolicy"}) {
        if (container.contains(field)) kept[field] = container[field];
      }
    }
  }
  return {{"spec", std::move(spec)}};
}

StatusOr<Json> podSet(const v1::TrainingJob& job, v1::Role role, int count,
                      const RenderOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto pod, renderPod(job, {role, 0}, 1, options));
  return Json{{"name", nameOf(role)}, {"count", count}, {"template", podSetTemplate(Json(pod))}};
}

// The item of a list whose member `name` is `value`; null where there is none.
const Json& itemOf(const Json& list, const char* name, std::string_view value) {
  static const Json kNone;
  if (!list.is_array()) return kNone;
  const auto found = std::find_if(list.begin(), list.end(),
                                  [&](const Json& one) { return textAt(one, name) == value; });
  return found == list.end() ? kNone : *found;
}

const Json& conditionOf(const Json& workload, std::string_view type) {
  return itemOf(member(member(workload, "status"), "conditions"), "type", type);
}

bool isTrue(const Json& workload, std::string_view type) {
  return textAt(conditionOf(workload, type), "status") == "True";
}

const Json& assignmentOf(const Json& workload, v1::Role role) {
  const Json& admission = member(member(workload, "status"), "admission");
  return itemOf(member(admission, "podSetAssignments"), "name", roleName(role));
}

int reclaimable(const Json& workload, v1::Role role) {
  const Json& list = member(member(workload, "status"), "reclaimablePods");
  return numberAt(itemOf(list, "name", roleName(role)), "count");
}

QuotaEnd endOf(const Json& workload) {
  if (!isTrue(workload, "Finished")) return QuotaEnd::kOpen;
  const bool failed = textAt(conditionOf(workload, "Finished"), "reason") == "Failed";
  return failed ? QuotaEnd::kFailed : QuotaEnd::kSucceeded;
}

QuotaClaim claimOf(const Json& workload) {
  const Json& sets = member(member(workload, "spec"), "podSets");
  const Json& worker = itemOf(sets, "name", roleName(v1::ROLE_WORKER));
  QuotaClaim claim;
  claim.ps = numberAt(itemOf(sets, "name", roleName(v1::ROLE_PS)), "count");
  claim.workers = numberAt(worker, "count");
  claim.least_workers = worker.contains("minCount") ? numberAt(worker, "minCount") : claim.workers;
  claim.ps_done = reclaimable(workload, v1::ROLE_PS);
  claim.workers_done = reclaimable(workload, v1::ROLE_WORKER);
  claim.ready = isTrue(workload, "PodsReady");
  claim.end = endOf(workload);
  return claim;
}

// As Kubernetes keeps conditions: the time moves with the status alone.
void setCondition(Json& conditions, const Json& workload, Json condition, UnixMillis now) {
  const Json& generation = member(member(workload, "metadata"), "generation");
  if (generation.is_number()) condition["observedGeneration"] = generation;
  condition["lastTransitionTime"] = formatRfc3339(now);
  for (Json& one : conditions) {
    if (textAt(one, "type") != textAt(condition, "type")) continue;
    if (textAt(one, "status") == textAt(condition, "status"))
      condition["lastTransitionTime"] = member(one, "lastTransitionTime");
    one = std::move(condition);
    return;
  }
  conditions.push_back(std::move(condition));
}

Json conditionsOf(const Json& workload) {
  const Json& conditions = member(member(workload, "status"), "conditions");
  return conditions.is_array() ? conditions : Json::array();
}

Json statusPatchOf(const Json& workload, Json status) {
  Json patch = {{"status", std::move(status)}};
  patch["metadata"]["resourceVersion"] = textAt(member(workload, "metadata"), "resourceVersion");
  return patch;
}

// `again`: they were ready before, which Kueue gives another time limit.
Json readyCondition(bool ready, bool again) {
  return {{"type", "PodsReady"},
          {"status", ready ? "True" : "False"},
          {"reason", ready   ? (again ? "Recovered" : "Started")
                     : again ? "WaitForRecovery"
                             : "WaitForStart"},
          {"message", ready ? "all tasks are ready" : "not all tasks are ready"}};
}

bool wasReadyBefore(const Json& workload) {
  const Json& told = conditionOf(workload, "PodsReady");
  return textAt(told, "status") == "True" || textAt(told, "reason") == "WaitForRecovery";
}

std::string whyItWaits(const Json& workload) {
  if (isTrue(workload, "Evicted")) return textAt(conditionOf(workload, "Evicted"), "message");
  if (!isTrue(workload, "QuotaReserved"))
    return textAt(conditionOf(workload, "QuotaReserved"), "message");
  return textAt(conditionOf(workload, "Admitted"), "message");
}

}  // namespace

std::string queueOf(const v1::TrainingJob& job) {
  return labelOfJob(job, kQueueLabel);
}

std::string workloadName(const v1::TrainingJob& job) {
  return fmt::format("trainingjob-{}-{}", job.metadata().name(), job.metadata().uid().substr(0, 8));
}

PriorityClass priorityClassOf(const v1::TrainingJob& job) {
  if (const std::string label = labelOfJob(job, kPriorityLabel); !label.empty())
    return {label, /*of_workloads=*/true};
  for (const v1::Role role : {v1::ROLE_PS, v1::ROLE_WORKER}) {
    const Json pod = Json::parse(templateText(job, role), nullptr, /*allow_exceptions=*/false);
    const std::string name = textAt(member(pod, "spec"), "priorityClassName");
    if (!name.empty()) return {name, /*of_workloads=*/false};
  }
  // That of pods whose template names none.
  return {job.spec().run_policy().scheduling_policy().priority_class(), /*of_workloads=*/false};
}

StatusOr<Json> renderWorkload(const v1::TrainingJob& job, const QuotaClaim& claim,
                              const PriorityClass& priority, const RenderOptions& options) {
  Json workload = Json(renderObject("Workload", job, workloadName(job)));
  workload["apiVersion"] = "kueue.x-k8s.io/v1beta1";
  workload["metadata"]["annotations"][std::string(kAskedAnnotation)] = askedOf(job);
  Json sets = Json::array();
  if (claim.ps > 0) {
    TY_ASSIGN_OR_RETURN(Json ps, podSet(job, v1::ROLE_PS, claim.ps, options));
    sets.push_back(std::move(ps));
  }
  TY_ASSIGN_OR_RETURN(Json worker, podSet(job, v1::ROLE_WORKER, claim.workers, options));
  if (claim.least_workers < claim.workers) worker["minCount"] = claim.least_workers;
  sets.push_back(std::move(worker));
  Json& spec = workload["spec"];
  spec = {{"queueName", queueOf(job)}, {"podSets", std::move(sets)}, {"active", true}};
  if (!priority.name.empty()) {
    spec["priorityClassName"] = priority.name;
    spec["priorityClassSource"] = priority.of_workloads ? "kueue.x-k8s.io/workloadpriorityclass"
                                                        : "scheduling.k8s.io/priorityclass";
    spec["priority"] = priority.value;
  }
  return workload;
}

QuotaObservation readWorkload(const v1::TrainingJob& job, const Json& workload) {
  QuotaObservation quota;
  quota.queue = queueOf(job);
  if (workload.is_null()) return quota;
  quota.claim = claimOf(workload);
  quota.outdated = annotationOf(workload, kAskedAnnotation) != askedOf(job);
  if (quota.claim->end != QuotaEnd::kOpen) return quota;
  quota.held = member(member(workload, "status"), "admission").is_object();
  quota.granted = quota.held && isTrue(workload, "Admitted");
  // Who holds quota without being admitted yet may be evicted as well.
  quota.withdrawn = quota.held && isTrue(workload, "Evicted");
  const Json& worker = assignmentOf(workload, v1::ROLE_WORKER);
  quota.workers_granted =
      worker.contains("count") ? numberAt(worker, "count") : quota.claim->workers;
  if (!quota.granted || quota.withdrawn) quota.message = whyItWaits(workload);
  return quota;
}

Json claimPatch(const Json& workload, const QuotaClaim& claim, UnixMillis now) {
  const QuotaClaim known = claimOf(workload);
  Json status = Json::object();
  Json conditions = conditionsOf(workload);
  if (known.ready != claim.ready)
    setCondition(conditions, workload, readyCondition(claim.ready, wasReadyBefore(workload)), now);
  if (known.end != claim.end && claim.end != QuotaEnd::kOpen) {
    const bool failed = claim.end == QuotaEnd::kFailed;
    setCondition(conditions, workload,
                 {{"type", "Finished"},
                  {"status", "True"},
                  {"reason", failed ? "Failed" : "Succeeded"},
                  {"message", failed ? "the job has failed" : "the job has succeeded"}},
                 now);
  }
  if (conditions != conditionsOf(workload)) status["conditions"] = std::move(conditions);
  if (known.ps_done != claim.ps_done || known.workers_done != claim.workers_done) {
    Json& list = status["reclaimablePods"] = Json::array();
    if (claim.ps_done > 0)
      list.push_back({{"name", nameOf(v1::ROLE_PS)}, {"count", claim.ps_done}});
    if (claim.workers_done > 0)
      list.push_back({{"name", nameOf(v1::ROLE_WORKER)}, {"count", claim.workers_done}});
  }
  return status.empty() ? Json() : statusPatchOf(workload, std::move(status));
}

Json askPatch(const Json& workload, const Json& wanted) {
  const std::string asked(kAskedAnnotation);
  const QuotaClaim is = claimOf(workload), should = claimOf(wanted);
  const bool same = is.ps == should.ps && is.workers == should.workers &&
                    is.least_workers == should.least_workers &&
                    annotationOf(workload, asked) == annotationOf(wanted, asked);
  if (same) return {};
  Json patch = {{"spec", member(wanted, "spec")}};
  patch["metadata"]["resourceVersion"] = textAt(member(workload, "metadata"), "resourceVersion");
  patch["metadata"]["annotations"][asked] = annotationOf(wanted, asked);
  for (const char* field : {"priorityClassName", "priorityClassSource", "priority"}) {
    if (!patch["spec"].contains(field)) patch["spec"][field] = nullptr;
  }
  return patch;
}

Json giveBackPatch(const Json& workload, UnixMillis now) {
  const Json& evicted = conditionOf(workload, "Evicted");
  const std::string reason = textAt(evicted, "reason");
  Json conditions = conditionsOf(workload);
  const auto set = [&](const char* type, bool value, const std::string& why,
                       const std::string& message) {
    setCondition(conditions, workload,
                 {{"type", type},
                  {"status", value ? "True" : "False"},
                  {"reason", why},
                  {"message", message}},
                 now);
  };
  const std::string message = textAt(evicted, "message");
  // Others wait for what they were evicted for, and Kueue sets this then.
  const bool at_once = reason == "Preempted" || reason == "NodeFailures";
  set("Requeued", at_once, reason, message);
  set("QuotaReserved", false, "Pending", message);
  set("Admitted", false, "NoReservation", "The workload has no reservation");
  setCondition(conditions, workload, readyCondition(false, /*again=*/false), now);
  return statusPatchOf(workload, {{"conditions", std::move(conditions)},
                                  {"admission", nullptr},
                                  {"reclaimablePods", nullptr}});
}

void trimWorkload(Json& workload) {
  trimObject(workload);
  if (!workload.contains("spec") || !workload["spec"].contains("podSets")) return;
  for (Json& set : workload["spec"]["podSets"]) set.erase("template");
}

}  // namespace trainyard::control
