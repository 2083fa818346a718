#include <algorithm>
#include <utility>

#include "base/core/strings.h"
#include "base/json/members.h"
#include "cli/doctor/internal/collect.h"
#include "cli/doctor/quantity.h"
#include "cli/kube/cluster_view.h"
#include "cli/kube/connect.h"
#include "fmt/format.h"
#include "operator/kube/observe/observe.h"

namespace trainyard::cli {
namespace {

using control::KubeResource;
using Json = nlohmann::json;

constexpr KubeResource kClaims{"", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"};
constexpr KubeResource kQuotas{"", "v1", "resourcequotas", "ResourceQuota"};
constexpr KubeResource kStorageClasses{"storage.k8s.io", "v1", "storageclasses", "StorageClass"};
constexpr char kPodSecurity[] = "pod-security.kubernetes.io/enforce";
constexpr char kDefaultClass[] = "storageclass.kubernetes.io/is-default-class";

// Leading digits: managed clusters write "29+".
int leadingNumber(const std::string& text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  return parseNumber<int>(std::string_view(text).substr(0, digits)).value_or(0);
}

StatusOr<KubeVersion> collectVersion(Questions& questions, const std::string& server) {
  const auto answer = questions.raw("/version");
  if (absl::IsNotFound(answer.status())) {
    return absl::FailedPreconditionError(server + " is no apiserver: it knows no /version");
  }
  if (!answer.ok()) return explain(answer.status(), server);
  const Json& json = *answer;
  return KubeVersion{leadingNumber(textAt(json, "major")), leadingNumber(textAt(json, "minor")),
                     textAt(json, "gitVersion")};
}

StatusOr<NamespaceFacts> collectNamespace(Questions& questions, const std::string& ns) {
  const auto object = questions.get(control::kNamespaces, "", ns);
  if (absl::IsNotFound(object.status())) return NamespaceFacts{};
  TY_RETURN_IF_ERROR(object.status());
  return namespaceOf(*object);
}

// What `factOf` makes of all objects together.
template <typename Fact>
StatusOr<Fact> collectAll(Questions& questions, const KubeResource& resource, const std::string& ns,
                          Fact (*factOf)(const std::vector<Json>&)) {
  TY_ASSIGN_OR_RETURN(const std::vector<Json> objects, questions.list(resource, ns));
  return factOf(objects);
}

// Of each object.
template <typename Fact>
StatusOr<std::vector<Fact>> collectEach(Questions& questions, const KubeResource& resource,
                                        const std::string& ns, Fact (*factOf)(const Json&)) {
  TY_ASSIGN_OR_RETURN(const std::vector<Json> objects, questions.list(resource, ns));
  std::vector<Fact> facts;
  for (const Json& object : objects) facts.push_back(factOf(object));
  return facts;
}

StatusOr<std::vector<std::string>> collectQueues(Questions& questions) {
  TY_ASSIGN_OR_RETURN(const Json json, questions.raw("/apis"));
  std::vector<std::string> names;
  for (const Json& group : member(json, "groups")) {
    for (const QueueKind& queue : {kKueue, kVolcano, kCoscheduling}) {
      if (textAt(group, "name") == queue.group) names.emplace_back(queue.name);
    }
  }
  return names;
}

// One that cannot be read is passed over: `trainyard get` names it.
StatusOr<std::vector<JobView>> collectJobs(Questions& questions, const std::string& ns) {
  TY_ASSIGN_OR_RETURN(std::vector<Json> objects, questions.list(control::kTrainingJobs, ns));
  std::vector<JobView> jobs;
  for (Json& object : objects) {
    auto job = clusterView(std::move(object));
    if (job.ok()) jobs.push_back(*std::move(job));
  }
  return jobs;
}

int howMany(const std::vector<Json>& objects) {
  return static_cast<int>(objects.size());
}

bool isReady(const Json& node) {
  for (const Json& condition : member(member(node, "status"), "conditions")) {
    if (textAt(condition, "type") == "Ready") return textAt(condition, "status") == "True";
  }
  return false;
}

void collectNamespaced(Questions& questions, const std::string& ns, ClusterFacts& facts) {
  facts.space = collectNamespace(questions, ns);
  facts.claims = collectEach(questions, kClaims, ns, claimOf);
  facts.used_up = collectAll(questions, kQuotas, ns, usedUp);
  facts.network_policies = collectAll(questions, control::kNetworkPolicies, ns, howMany);
  facts.jobs = collectJobs(questions, ns);
}

}  // namespace

NamespaceFacts namespaceOf(const Json& object) {
  return {true, textAt(member(object, "status"), "phase") == "Terminating",
          control::labelOf(object, kPodSecurity)};
}

NodesFacts nodesOf(const std::vector<Json>& nodes) {
  NodesFacts facts;
  for (const Json& node : nodes) {
    ++facts.all;
    if (!isReady(node) || member(member(node, "spec"), "unschedulable") == true) continue;
    ++facts.usable;
    const Json& status = member(node, "status");
    if (textAt(member(status, "nodeInfo"), "architecture") == "amd64") ++facts.amd64;
    const auto gpus = parseQuantity(textAt(member(status, "allocatable"), "nvidia.com/gpu"));
    facts.gpus += static_cast<std::int64_t>(gpus.value_or(0));
  }
  return facts;
}

ClaimFacts claimOf(const Json& claim) {
  const Json& spec = member(claim, "spec");
  ClaimFacts facts{textAt(member(claim, "metadata"), "name"),
                   textAt(member(claim, "status"), "phase"), textAt(spec, "storageClassName")};
  for (const Json& mode : member(spec, "accessModes")) {
    if (mode == "ReadWriteMany") facts.many_writers = true;
  }
  return facts;
}

StorageClassFacts storageClassOf(const Json& object) {
  return {textAt(member(object, "metadata"), "name"), textAt(object, "provisioner"),
          control::annotationOf(object, kDefaultClass) == "true",
          textAt(object, "volumeBindingMode") == "WaitForFirstConsumer"};
}

std::vector<QuotaUse> usedUp(const std::vector<Json>& quotas) {
  std::vector<QuotaUse> full;
  for (const Json& quota : quotas) {
    const Json& status = member(quota, "status");
    for (const auto& [resource, hard] : member(status, "hard").items()) {
      const std::string used = textAt(member(status, "used"), resource);
      const std::string limit = hard.is_string() ? hard.get<std::string>() : "";
      const auto taken = parseQuantity(used);
      const auto most = parseQuantity(limit);
      if (!taken || !most || *taken < *most) continue;
      full.push_back({textAt(member(quota, "metadata"), "name"), resource, used, limit});
    }
  }
  return full;
}

ClusterFacts collectCluster(control::HttpTransport& transport, const Clock& clock,
                            const ClusterPlace& place) {
  Questions questions(transport, clock, place.user_agent);
  ClusterFacts facts;
  facts.server = place.server;
  facts.ns = place.ns;
  facts.version = collectVersion(questions, place.server);
  if (!facts.answers()) return facts;
  facts.definition = collectDefinition(questions);
  facts.rights = collectUserRights(questions, place.ns);
  collectNamespaced(questions, place.ns, facts);
  facts.nodes = collectAll(questions, control::kNodes, "", nodesOf);
  facts.storage_classes = collectEach(questions, kStorageClasses, "", storageClassOf);
  facts.queues = collectQueues(questions);
  // Last, since a lease may have to be watched for some seconds.
  facts.operators = collectOperators(questions, place);
  return facts;
}

}  // namespace trainyard::cli
