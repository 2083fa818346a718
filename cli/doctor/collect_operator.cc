#include <algorithm>
#include <string_view>
#include <utility>

#include "base/core/strings.h"
#include "base/json/members.h"
#include "cli/doctor/internal/collect.h"
#include "cli/jobs/patience.h"
#include "fmt/format.h"
#include "operator/kube/lease_store.h"
#include "operator/kube/observe/observe.h"

namespace trainyard::cli {
namespace {

using control::kTrainingJobs;
using control::LeaseRecord;
using Json = nlohmann::json;

constexpr control::KubeResource kDefinitions{
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition"};
constexpr control::KubeResource kDeployments{"apps", "v1", "deployments", "Deployment"};
constexpr char kDefinitionName[] = "trainingjobs.trainyard.dev";
constexpr char kOperatorLabels[] =
    "app.kubernetes.io/part-of=trainyard,app.kubernetes.io/component=operator";
// Where docs/kubernetes.md puts it, for users who may not look everywhere.
constexpr char kUsualNamespace[] = "trainyard";
constexpr Duration kLeaseLook = std::chrono::milliseconds(500);

const Json& at(const Json& object, std::initializer_list<std::string_view> path) {
  const Json* here = &object;
  for (const std::string_view name : path) here = &member(*here, name);
  return *here;
}

const Json& firstContainer(const Json& deployment) {
  static const Json kNone;
  const Json& containers = at(deployment, {"spec", "template", "spec", "containers"});
  return containers.is_array() && !containers.empty() ? containers[0] : kNone;
}

// The values of all "--NAME=VALUE".
std::vector<std::string> argumentsOf(const Json& container, const std::string& name) {
  const std::string prefix = fmt::format("--{}=", name);
  std::vector<std::string> values;
  for (const Json& argument : member(container, "args")) {
    const std::string text = argument.is_string() ? argument.get<std::string>() : "";
    if (text.starts_with(prefix)) values.push_back(text.substr(prefix.size()));
  }
  return values;
}

// The first of them; "" where there is none.
std::string argumentOf(const Json& container, const std::string& name) {
  const std::vector<std::string> values = argumentsOf(container, name);
  return values.empty() ? "" : values.front();
}

// "0.1.0" of "host:5000/trainyard-operator:0.1.0"; "" where a tag is no version.
std::string versionOfImage(const std::string& image) {
  const std::string name = image.substr(image.rfind('/') + 1);  // npos + 1 is 0
  const std::string_view tag = splitFirst(splitFirst(name, '@').first, ':').second;
  const bool digits = !tag.empty() && tag.front() >= '0' && tag.front() <= '9';
  return digits ? std::string(tag) : "";
}

// Reasons of containers that wait, as ImagePullBackOff, and what the Deployment says itself.
std::string troubleOf(const Json& deployment, const StatusOr<std::vector<Json>>& pods) {
  for (const Json& pod : pods.value_or(std::vector<Json>())) {
    for (const Json& container : at(pod, {"status", "containerStatuses"})) {
      const Json& waiting = at(container, {"state", "waiting"});
      if (waiting.is_object()) {
        return fmt::format("{}: {}", textAt(waiting, "reason"), textAt(waiting, "message"));
      }
    }
    for (const Json& condition : at(pod, {"status", "conditions"})) {
      if (textAt(condition, "type") == "PodScheduled" && textAt(condition, "status") == "False")
        return textAt(condition, "message");
    }
  }
  for (const Json& condition : at(deployment, {"status", "conditions"})) {
    const bool failure = textAt(condition, "type") == "ReplicaFailure";
    if (failure && textAt(condition, "status") == "True") return textAt(condition, "message");
  }
  return "";
}

StatusOr<LeaseRecord> readLease(Questions& questions, const OperatorFacts& found) {
  TY_ASSIGN_OR_RETURN(const Json lease, questions.get(control::kLeases, found.ns, found.lease));
  return control::fromLease(lease);
}

// By this machine's clock, and where that says no, by whether it is renewed while we look: the
// clocks may differ.
StatusOr<LeaderFacts> collectLeader(Questions& questions, const OperatorFacts& found,
                                    Duration limit) {
  auto lease = readLease(questions, found);
  if (absl::IsNotFound(lease.status())) return LeaderFacts{};
  TY_RETURN_IF_ERROR(lease.status());
  LeaderFacts facts;
  facts.holder = lease->holder;
  if (facts.holder.empty()) return facts;
  facts.age_seconds = (questions.clock().unixMillis() - lease->renewed) / 1000;
  facts.fresh = facts.age_seconds >= 0 && facts.age_seconds <= lease->duration_seconds;
  const Patience patience(questions.clock(), limit, kLeaseLook);
  while (!facts.fresh && patience.wait()) {
    const auto later = readLease(questions, found);
    TY_RETURN_IF_ERROR(later.status());
    facts.fresh = !control::isSameRenewal(*lease, *later);
    facts.holder = later->holder;
  }
  return facts;
}

// All namespaces, else those that a user without that right may see.
StatusOr<std::vector<Json>> operatorDeployments(Questions& questions, const std::string& ns,
                                                bool& everywhere) {
  auto all = questions.list(kDeployments, "", kOperatorLabels);
  everywhere = all.ok();
  if (all.ok() || !absl::IsPermissionDenied(all.status())) return all;
  bool any = false;
  std::vector<Json> found;
  for (const std::string& place : {ns, std::string(kUsualNamespace)}) {
    const auto some = questions.list(kDeployments, place, kOperatorLabels);
    any = any || some.ok();
    if (some.ok()) found.insert(found.end(), some->begin(), some->end());
    if (ns == kUsualNamespace) break;
  }
  if (!any) return all;
  return found;
}

bool isServed(const Json& version) {
  return textAt(version, "name") == kTrainingJobs.version && member(version, "served") == true;
}

}  // namespace

DefinitionFacts definitionOf(const Json& definition) {
  DefinitionFacts facts;
  facts.there = true;
  for (const Json& version : at(definition, {"spec", "versions"})) {
    if (!isServed(version)) continue;
    facts.served = true;
    facts.difference = control::compareDefinition(at(version, {"schema", "openAPIV3Schema"}));
  }
  for (const Json& condition : at(definition, {"status", "conditions"})) {
    const std::string type = textAt(condition, "type");
    const bool wanted = type == "Established" || type == "NamesAccepted";
    if (wanted && textAt(condition, "status") == "False")
      facts.trouble = textAt(condition, "message");
  }
  return facts;
}

DefinitionFacts publishedDefinition(const Json& document) {
  DefinitionFacts facts;
  for (const auto& [name, schema] : at(document, {"components", "schemas"}).items()) {
    if (!name.ends_with(fmt::format(".{}", kTrainingJobs.kind))) continue;
    facts.there = facts.served = true;
    facts.difference = control::compareDefinition(schema);
  }
  return facts;
}

StatusOr<DefinitionFacts> collectDefinition(Questions& questions) {
  const auto definition = questions.get(kDefinitions, "", kDefinitionName);
  if (definition.ok()) return definitionOf(*definition);
  if (absl::IsNotFound(definition.status())) return DefinitionFacts{};
  if (!absl::IsPermissionDenied(definition.status())) return definition.status();
  const auto document = questions.raw(
      fmt::format("/openapi/v3/apis/{}/{}", kTrainingJobs.group, kTrainingJobs.version));
  if (absl::IsNotFound(document.status())) return DefinitionFacts{};
  TY_RETURN_IF_ERROR(document.status());
  return publishedDefinition(*document);
}

OperatorFacts operatorOf(const Json& deployment) {
  OperatorFacts facts;
  const Json& container = firstContainer(deployment);
  facts.ns = textAt(member(deployment, "metadata"), "namespace");
  facts.name = textAt(member(deployment, "metadata"), "name");
  facts.image = textAt(container, "image");
  facts.version = versionOfImage(facts.image);
  if (facts.version.empty()) {
    facts.version = control::labelOf(deployment, "app.kubernetes.io/version");
  }
  facts.account = textAt(at(deployment, {"spec", "template", "spec"}), "serviceAccountName");
  if (facts.account.empty()) facts.account = "default";
  facts.watches = argumentsOf(container, "namespace");
  facts.lease = argumentOf(container, "lease-name");
  facts.makes_policies = !argumentOf(container, "job-network-policy").empty();
  const std::string gang = argumentOf(container, "gang-scheduler");
  if (!gang.empty()) facts.gang = gang == kVolcano.name ? &kVolcano : &kCoscheduling;
  const Json& arguments = member(container, "args");
  facts.queues = std::find(arguments.begin(), arguments.end(), "--kueue") != arguments.end();
  facts.wanted = numberAt(member(deployment, "spec"), "replicas");
  facts.ready = numberAt(member(deployment, "status"), "readyReplicas");
  return facts;
}

StatusOr<OperatorsFacts> collectOperators(Questions& questions, const ClusterPlace& place) {
  OperatorsFacts facts;
  TY_ASSIGN_OR_RETURN(const std::vector<Json> deployments,
                      operatorDeployments(questions, place.ns, facts.everywhere));
  for (const Json& deployment : deployments) {
    OperatorFacts found = operatorOf(deployment);
    if (found.ready < found.wanted) {
      found.trouble =
          troubleOf(deployment, questions.list(control::kPods, found.ns, kOperatorLabels));
    }
    if (!found.lease.empty()) {
      found.leader = collectLeader(questions, found, place.lease_patience);
    }
    if (found.looksAfter(place.ns)) {
      found.rights = collectOperatorRights(questions, found, place.ns);
    }
    facts.found.push_back(std::move(found));
  }
  return facts;
}

}  // namespace trainyard::cli
