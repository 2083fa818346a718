#include <algorithm>

#include "base/core/rfc3339.h"
#include "base/core/strings.h"
#include "cli/doctor/internal/cluster_groups.h"
#include "fmt/format.h"

namespace trainyard::cli {
namespace {

constexpr UnixMillis kTakenUpWithin = 30'000;  // an operator needs a second
constexpr int kNamedFailures = 3;

void checkSpace(const ClusterFacts& facts, FindingGroup& group) {
  if (!facts.space.ok()) return group.unknown("namespace " + facts.ns, facts.space.status());
  const NamespaceFacts& space = *facts.space;
  if (!space.there) {
    return group.problem(
        fmt::format("there is no namespace {}", facts.ns),
        fmt::format("kubectl create namespace {}, or name another: -n NAMESPACE", facts.ns));
  }
  if (space.terminating) {
    return group.problem(fmt::format("namespace {} is being deleted", facts.ns),
                         "name another: -n NAMESPACE");
  }
  const std::string standard = space.pod_security.empty() ? "no pod security standard"
                                                          : "pod security " + space.pod_security;
  group.ok(fmt::format("namespace {} with {}, which tasks keep to", facts.ns, standard));
}

void checkQuotas(const ClusterFacts& facts, FindingGroup& group) {
  if (!facts.used_up.ok()) return group.unknown("quotas", facts.used_up.status());
  for (const QuotaUse& use : *facts.used_up) {
    group.warning(fmt::format("quota {} is used up: {} {} of {}", use.quota, use.resource, use.used,
                              use.hard),
                  fmt::format("delete what is not needed (trainyard get -n {}), or ask for a "
                              "larger quota",
                              facts.ns));
  }
  if (facts.used_up->empty()) group.ok("no quota is used up");
}

void checkPolicies(const ClusterFacts& facts, FindingGroup& group) {
  if (!facts.network_policies.ok()) {
    return group.unknown("network policies", facts.network_policies.status());
  }
  if (*facts.network_policies == 0) return group.ok("no NetworkPolicy");
  group.note(fmt::format("{} NetworkPolic{}", *facts.network_policies,
                         *facts.network_policies == 1 ? "y" : "ies"),
             "they must let tasks of a job reach each other, and the operator their agents (port "
             "2230): else conditions of jobs say AgentsReachable False");
}

void checkStorageClasses(const ClusterFacts& facts, FindingGroup& group) {
  if (!facts.storage_classes.ok()) {
    return group.unknown("storage classes", facts.storage_classes.status());
  }
  for (const StorageClassFacts& one : *facts.storage_classes) {
    if (!one.is_default) continue;
    return group.ok(fmt::format("default storage class {} ({})", one.name, one.provisioner));
  }
  group.note(fmt::format("no default among {} storage classes", facts.storage_classes->size()),
             "claims must name a class, or a volume that is there");
}

// Whether the class binds claims when they are used.
bool bindsLater(const ClusterFacts& facts, const std::string& storage_class) {
  if (!facts.storage_classes.ok()) return false;
  return std::any_of(
      facts.storage_classes->begin(), facts.storage_classes->end(),
      [&](const StorageClassFacts& one) { return one.waits && one.name == storage_class; });
}

void checkClaim(const ClusterFacts& facts, const ClaimFacts& claim, FindingGroup& group) {
  if (claim.phase == "Bound") {
    return group.ok(fmt::format("claim {} is bound{}", claim.name,
                                claim.many_writers ? ", ReadWriteMany" : ""));
  }
  if (claim.phase == "Pending" && bindsLater(facts, claim.storage_class)) {
    return group.note(fmt::format("claim {} is bound when a pod uses it", claim.name));
  }
  group.warning(fmt::format("claim {} is {}", claim.name, claim.phase),
                fmt::format("kubectl -n {} describe pvc {}: is there a volume, or a provisioner, "
                            "for its class and access modes?",
                            facts.ns, claim.name));
}

// The condition of that type, where it has that status.
const v1::Condition* conditionOf(const JobView& job, std::string_view type,
                                 std::string_view status) {
  for (const v1::Condition& condition : job.job.status().conditions()) {
    if (condition.type() == type && condition.status() == status) return &condition;
  }
  return nullptr;
}

// Those that pass by themselves.
bool isUsualWait(const v1::Condition& reconciling) {
  return reconciling.reason() == "TasksNotReady" || reconciling.reason() == "WaitingForPs";
}

std::string conditionText(const JobView& job, const v1::Condition& condition) {
  return fmt::format("job {}: {} {} ({}): {}", job.name, condition.type(), condition.status(),
                     condition.reason(), condition.message());
}

std::string describeAdvice(const JobView& job) {
  return fmt::format("trainyard describe {} -n {}; docs/conditions.md says what the reason means",
                     job.name, job.ns);
}

bool isLongPending(const JobView& job, UnixMillis now) {
  const UnixMillis created = parseRfc3339(job.job.metadata().creation_timestamp());
  return job.state == "Pending" && created > 0 && now - created > kTakenUpWithin;
}

// Whether anything was to be said of it.
bool checkJob(const JobView& job, UnixMillis now, FindingGroup& group) {
  const v1::Condition* worst = conditionOf(job, "Stalled", "True");
  if (worst == nullptr) worst = conditionOf(job, "AgentsReachable", "False");
  if (worst == nullptr) {
    worst = conditionOf(job, "Reconciling", "True");
    if (worst != nullptr && isUsualWait(*worst)) worst = nullptr;
  }
  if (worst != nullptr) {
    group.warning(conditionText(job, *worst), describeAdvice(job));
    return true;
  }
  if (!isLongPending(job, now)) return false;
  group.warning(fmt::format("job {}: no operator has taken it up", job.name),
                "is there an operator that looks after this namespace (above)? Else "
                "spec.runPolicy.managedBy may name another controller");
  return true;
}

}  // namespace

void findNamespace(const ClusterFacts& facts, std::vector<Finding>& findings) {
  FindingGroup group("Namespace", findings);
  checkSpace(facts, group);
  checkQuotas(facts, group);
  checkPolicies(facts, group);
}

void findNodes(const ClusterFacts& facts, std::vector<Finding>& findings) {
  FindingGroup group("Nodes", findings);
  if (!facts.nodes.ok()) return group.unknown("nodes and GPUs", facts.nodes.status());
  const NodesFacts& nodes = *facts.nodes;
  const std::string text = fmt::format("{} of {} nodes take pods", nodes.usable, nodes.all);
  if (nodes.usable == 0) {
    return group.warning(text,
                         "pods wait until an autoscaler adds nodes; else: kubectl get nodes, and "
                         "kubectl uncordon NODE");
  }
  if (nodes.amd64 == 0) {
    group.problem(text + ", none of them amd64, for which the images are",
                  "add nodes of amd64: images for others are not built");
  } else if (nodes.amd64 < nodes.usable) {
    group.warning(fmt::format("{}, {} of them amd64, for which the images are", text, nodes.amd64),
                  "give the templates of jobs the nodeSelector kubernetes.io/arch: amd64");
  } else {
    group.ok(text);
  }
  group.note(nodes.gpus > 0 ? fmt::format("{} nvidia.com/gpu on these nodes", nodes.gpus)
                            : "no node has nvidia.com/gpu",
             nodes.gpus > 0 ? ""
                            : "tasks that ask for one wait; with GPUs in the nodes: install "
                              "NVIDIA's device plugin");
}

void findStorage(const ClusterFacts& facts, std::vector<Finding>& findings) {
  FindingGroup group("Storage", findings);
  checkStorageClasses(facts, group);
  if (!facts.claims.ok()) return group.unknown("claims", facts.claims.status());
  bool many_writers = false;
  for (const ClaimFacts& claim : *facts.claims) {
    checkClaim(facts, claim, group);
    many_writers = many_writers || (claim.phase == "Bound" && claim.many_writers);
  }
  if (many_writers) return;
  group.note(
      "no bound claim with ReadWriteMany",
      "a job directory that lasts needs one (spec.storage.volume), of a class such as NFS "
      "or CephFS, or one that a single node mounts (with spec.storage.access: Coordinator), or an "
      "object store (spec.storage.s3): else checkpoints end with their pods");
}

void findJobs(const ClusterFacts& facts, UnixMillis now, std::vector<Finding>& findings) {
  FindingGroup group("Jobs", findings);
  if (facts.definition.ok() && !facts.definition->there) return;  // said already
  if (!facts.jobs.ok()) return group.unknown("jobs", facts.jobs.status());
  int well = 0;
  int failed = 0;
  for (const JobView& job : *facts.jobs) {
    if (job.state == "Failed") {
      if (++failed <= kNamedFailures) {
        group.note(fmt::format("job {} has failed: {}", job.name, failureOf(job.job)));
      }
    } else if (!checkJob(job, now, group)) {
      ++well;
    }
  }
  if (failed > kNamedFailures) {
    group.note(fmt::format("{} more jobs have failed", failed - kNamedFailures));
  }
  if (facts.jobs->empty()) return group.ok(fmt::format("none in namespace {}", facts.ns));
  group.ok(fmt::format("{} of {} without trouble", well, facts.jobs->size()));
}

}  // namespace trainyard::cli
