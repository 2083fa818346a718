#include <algorithm>

#include "base/core/strings.h"
#include "cli/doctor/internal/cluster_groups.h"
#include "fmt/format.h"

namespace trainyard::cli {
namespace {

constexpr std::size_t kNamedFields = 3;
constexpr char kInstall[] =
    "helm install trainyard helm/trainyard --namespace trainyard --create-namespace "
    "(docs/kubernetes.md)";
constexpr char kUpgrade[] =
    "bring the cluster to this release: helm upgrade trainyard helm/trainyard --namespace "
    "trainyard; without the chart: kubectl apply --server-side -f deploy/crds.yaml";

// "spec.a, spec.b and 4 more"
std::string someOf(const std::vector<std::string>& fields) {
  const std::size_t shown = std::min(fields.size(), kNamedFields);
  std::string text =
      join({fields.begin(), fields.begin() + static_cast<std::ptrdiff_t>(shown)}, ", ");
  if (fields.size() > shown) text += fmt::format(" and {} more", fields.size() - shown);
  return text;
}

void findDefinition(const ClusterFacts& facts, FindingGroup& group) {
  if (!facts.definition.ok()) {
    return group.unknown("the definition of TrainingJob", facts.definition.status());
  }
  const DefinitionFacts& definition = *facts.definition;
  if (!definition.there) {
    return group.problem("the cluster knows no TrainingJobs: their definition is not installed",
                         kInstall);
  }
  if (!definition.trouble.empty()) {
    return group.problem(
        fmt::format("the definition of TrainingJob is not taken: {}", definition.trouble),
        "kubectl describe crd trainingjobs.trainyard.dev");
  }
  if (!definition.served) {
    return group.problem("the definition of TrainingJob does not serve version v1alpha1", kUpgrade);
  }
  const control::DefinitionDifference& difference = definition.difference;
  if (!difference.missing.empty()) {
    return group.warning(fmt::format("the definition of TrainingJob is of another release: it has "
                                     "no {}",
                                     someOf(difference.missing)),
                         kUpgrade);
  }
  if (!difference.unknown.empty()) {
    return group.note(fmt::format("the definition of TrainingJob is newer: it also has {}",
                                  someOf(difference.unknown)),
                      "to use that, take the command line of its release");
  }
  group.ok("the definition of TrainingJob has the fields of this release");
}

std::string shown(const OperatorFacts& found) {
  return fmt::format("operator {}/{}", found.ns, found.name);
}

void findReady(const OperatorFacts& found, FindingGroup& group) {
  const std::string text =
      fmt::format("{}: {} of {} ready", shown(found), found.ready, found.wanted);
  if (found.wanted == 0) {
    return group.problem(text, fmt::format("start it: kubectl -n {} scale deployment/{} "
                                           "--replicas=2",
                                           found.ns, found.name));
  }
  if (found.ready >= found.wanted) return group.ok(text);
  const std::string why = found.trouble.empty() ? text : fmt::format("{}: {}", text, found.trouble);
  const std::string advice = fmt::format(
      "kubectl -n {0} describe pods -l app.kubernetes.io/component=operator; kubectl -n {0} logs "
      "deployment/{1}",
      found.ns, found.name);
  if (found.ready == 0) return group.problem(why, advice);
  group.warning(why, advice);
}

void findOperatorVersion(const OperatorFacts& found, const Release& release, FindingGroup& group) {
  if (found.version.empty()) {
    return group.unknown(
        shown(found), absl::UnknownError("its image does not say its version: " + found.image),
        fmt::format("it should be {}: look from what the image was built", release.version));
  }
  const std::string text = fmt::format("{} is {}", shown(found), found.version);
  if (found.version == release.version) return group.ok(text);
  group.warning(fmt::format("{}, trainyard here is {}", text, release.version),
                "use one release of both: helm upgrade, or the command line of that release");
}

void findLeader(const OperatorFacts& found, FindingGroup& group) {
  if (found.lease.empty()) return;  // it has no other beside it
  if (!found.leader.ok()) {
    return group.unknown(fmt::format("who leads ({})", shown(found)), found.leader.status());
  }
  const LeaderFacts& leader = *found.leader;
  const std::string advice =
      fmt::format("see what its pods say: kubectl -n {} logs deployment/{}", found.ns, found.name);
  if (leader.holder.empty()) {
    return group.problem(fmt::format("{}: nobody leads, so nobody looks after jobs", shown(found)),
                         advice);
  }
  if (!leader.fresh) {
    const std::string since = leader.age_seconds > 0 ? fmt::format("for {} s", leader.age_seconds)
                                                     : "while it was watched";
    return group.problem(fmt::format("{}: {} leads, but has not renewed its lease {}", shown(found),
                                     leader.holder, since),
                         advice);
  }
  group.ok(fmt::format("{} leads", leader.holder));
}

void findOperatorRights(const OperatorFacts& found, const std::string& ns, FindingGroup& group) {
  const std::string account = fmt::format("ServiceAccount {}/{}", found.ns, found.account);
  if (!found.rights.ok()) {
    return group.unknown(fmt::format("what {} may do in {}", account, ns), found.rights.status());
  }
  const std::string missing = rightsText(*found.rights, false);
  if (missing.empty()) return group.ok(fmt::format("{} may do its work in {}", account, ns));
  group.problem(fmt::format("{} may not, in {}: {}", account, ns, missing),
                "install the chart with rbac.create=true (and watchNamespaces empty, or with "
                "that namespace), or bind what helm/trainyard/templates/rbac.yaml lists");
}

bool isThere(const ClusterFacts& facts, const QueueKind& kind) {
  const auto& there = *facts.queues;
  return std::find(there.begin(), there.end(), kind.name) != there.end();
}

void findKueue(const ClusterFacts& facts, const OperatorFacts& found, FindingGroup& group) {
  if (!found.queues || !facts.queues.ok() || isThere(facts, kKueue)) return;
  group.warning(
      fmt::format("{} lets jobs wait in queues of Kueue, and the cluster does not know it",
                  shown(found)),
      "install Kueue, or helm upgrade with kueue.enabled=false: until then jobs with its "
      "label wait");
}

void findGang(const ClusterFacts& facts, const OperatorFacts& found, FindingGroup& group) {
  if (found.gang == nullptr || !facts.queues.ok() || isThere(facts, *found.gang)) return;
  group.warning(fmt::format("{} makes PodGroups of {} for jobs that start as a whole, and the "
                            "cluster does not know them",
                            shown(found), found.gang->group),
                fmt::format("install {}, or helm upgrade with another gangScheduler.kind: until "
                            "then such jobs wait",
                            found.gang->name));
}

void findNoOperator(const ClusterFacts& facts, FindingGroup& group) {
  const OperatorsFacts& operators = *facts.operators;
  if (!operators.found.empty()) {
    const OperatorFacts& other = operators.found.front();
    return group.problem(
        fmt::format("{} looks after {} {} only, not after {}", shown(other),
                    other.watches.size() == 1 ? "namespace" : "the namespaces",
                    join(other.watches, ", "), facts.ns),
        "helm upgrade with that in watchNamespaces too (or none), or use one of those");
  }
  if (operators.everywhere) {
    return group.problem("no operator is installed: jobs stay Pending", kInstall);
  }
  group.unknown("operator", absl::PermissionDeniedError(fmt::format(
                                "there is none in {} and trainyard, and other namespaces may not "
                                "be looked through",
                                facts.ns)));
}

}  // namespace

void findOperator(const ClusterFacts& facts, const Release& release,
                  std::vector<Finding>& findings) {
  FindingGroup group("Operator", findings);
  findDefinition(facts, group);
  if (!facts.operators.ok()) return group.unknown("operator", facts.operators.status());
  std::vector<std::string> names;
  for (const OperatorFacts& found : facts.operators->found) {
    if (!found.looksAfter(facts.ns)) continue;
    names.push_back(fmt::format("{}/{}", found.ns, found.name));
    findReady(found, group);
    findOperatorVersion(found, release, group);
    findLeader(found, group);
    findOperatorRights(found, facts.ns, group);
    findGang(facts, found, group);
    findKueue(facts, found, group);
  }
  if (names.empty()) return findNoOperator(facts, group);
  if (names.size() < 2) return;
  group.problem(fmt::format("{} operators look after namespace {}: {}", names.size(), facts.ns,
                            join(names, ", ")),
                "leave one: helm uninstall the other releases (with crds.keep, so that the jobs "
                "stay), or give each watchNamespaces of its own");
}

}  // namespace trainyard::cli
