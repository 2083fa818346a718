#include "cli/doctor/cluster_findings.h"

#include <utility>

#include "base/core/strings.h"
#include "cli/doctor/internal/cluster_groups.h"
#include "cli/version.h"
#include "fmt/format.h"

namespace trainyard::cli {
namespace {

constexpr char kApiserver[] = "Apiserver";

std::string silenceAdvice(const Status& why) {
  if (absl::IsUnauthenticated(why)) {
    return "log in again, or name another user: --context NAME, --kubeconfig FILE (`kubectl auth "
           "whoami` with the same ones must work)";
  }
  if (absl::IsUnavailable(why) || absl::IsDeadlineExceeded(why)) {
    return "is that the right address (--context, --kubeconfig), and does the way there need a VPN "
           "or a proxy? `kubectl version` with the same ones must work";
  }
  return "try `kubectl version` with the same --context and --kubeconfig, whose message may say "
         "more";
}

void findVersion(const ClusterFacts& facts, const Release& release,
                 std::vector<Finding>& findings) {
  FindingGroup group(kApiserver, findings);
  if (!facts.version.ok()) return group.unknown("its version", facts.version.status());
  const KubeVersion& version = *facts.version;
  const std::string text = fmt::format("{} answers: Kubernetes {}", facts.server, version.text);
  if (std::pair(version.major, version.minor) >=
      std::pair(release.kube_major, release.kube_minor)) {
    return group.ok(text);
  }
  group.problem(
      fmt::format("{}, which is older than {}.{}", text, release.kube_major, release.kube_minor),
      "upgrade the cluster: the chart does not install on older ones");
}

// "list trainingjobs (trainyard get), ..."
std::string missingText(const std::vector<Right>& rights) {
  std::vector<std::string> texts;
  for (const Right& right : rights) {
    if (right.allowed) continue;
    texts.push_back(fmt::format("{} ({})", rightsText({right}, false), right.needed_by));
  }
  return join(texts, ", ");
}

void findUserRights(const ClusterFacts& facts, std::vector<Finding>& findings) {
  FindingGroup group("What you may do", findings);
  if (!facts.rights.ok()) return group.unknown("your rights", facts.rights.status());
  const std::string missing = missingText(*facts.rights);
  if (missing.empty()) {
    return group.ok(fmt::format("all that the commands need in namespace {}", facts.ns));
  }
  const std::string text = fmt::format("not allowed in namespace {}: {}", facts.ns, missing);
  const std::string advice = fmt::format(
      "ask for the role `edit` in namespace {} (`view` to look on only): the chart adds "
      "TrainingJobs to both",
      facts.ns);
  const std::string allowed = rightsText(*facts.rights, true);
  if (allowed.empty()) return group.problem(text, advice);
  group.ok(allowed);
  group.warning(text, advice);
}

void findQueues(const ClusterFacts& facts, std::vector<Finding>& findings) {
  FindingGroup group("Queues", findings);
  if (!facts.queues.ok()) return group.unknown("other schedulers", facts.queues.status());
  for (const std::string& name : *facts.queues) {
    group.note(fmt::format("{} is installed; it may hold back pods of jobs", name));
  }
  if (facts.queues->empty()) group.note("neither Kueue, Volcano nor scheduler-plugins is there");
}

}  // namespace

Release thisRelease() {
  return {versionText(), TRAINYARD_KUBE_MAJOR, TRAINYARD_KUBE_MINOR};
}

std::string rightsText(const std::vector<Right>& rights, bool allowed) {
  std::vector<std::string> texts;
  for (const Right& right : rights) {
    if (right.allowed != allowed) continue;
    texts.push_back(fmt::format("{} {}{}{}", right.verb, right.resource,
                                right.subresource.empty() ? "" : "/", right.subresource));
  }
  return join(texts, ", ");
}

std::vector<Finding> clusterFindings(const ClusterFacts& facts, const Release& release,
                                     UnixMillis now) {
  std::vector<Finding> findings;
  if (!facts.answers()) {
    FindingGroup group(kApiserver, findings);
    const Status& why = facts.version.status();
    group.problem(std::string(fromAbsl(why.message())), silenceAdvice(why));
    group.unknown("operator, rights, namespace, nodes and jobs", notAsked(), "the above first");
    return findings;
  }
  findVersion(facts, release, findings);
  findOperator(facts, release, findings);
  findUserRights(facts, findings);
  findNamespace(facts, findings);
  findStorage(facts, findings);
  findNodes(facts, findings);
  findQueues(facts, findings);
  findJobs(facts, now, findings);
  return findings;
}

std::vector<Finding> noClusterFindings(const Status& why) {
  std::vector<Finding> findings;
  FindingGroup group(kApiserver, findings);
  group.problem(std::string(fromAbsl(why.message())),
                "name one that `kubectl config get-contexts` lists: --kubeconfig FILE, --context "
                "NAME, or KUBECONFIG");
  return findings;
}

}  // namespace trainyard::cli
