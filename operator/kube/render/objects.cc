#include "base/core/annotations.h"
#include "base/core/strings.h"
#include "base/json/proto_json.h"
#include "fmt/format.h"
#include "google/protobuf/util/json_util.h"
#include "operator/job/template.h"
#include "operator/kube/render/names.h"
#include "operator/kube/render/render.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::ordered_json;

// A container of a template has a volume of its own in that place.
bool mountsItself(const std::string& pod_template, const std::string& path) {
  const Json pod = Json::parse(pod_template, nullptr, /*allow_exceptions=*/false);
  const Json none = Json::array();
  const auto listAt = [&none](const Json& value, const char* pointer) -> const Json& {
    const Json::json_pointer at(pointer);
    return value.is_object() && value.contains(at) && value.at(at).is_array() ? value.at(at) : none;
  };
  for (const Json& container : listAt(pod, "/spec/containers")) {
    for (const Json& mount : listAt(container, "/volumeMounts")) {
      if (mount.is_object() && mount.value("mountPath", Json()) == Json(path)) return true;
    }
  }
  return false;
}

}  // namespace

Json ownerReference(const v1::TrainingJob& job) {
  return {{"apiVersion", "trainyard.dev/v1alpha1"},
          {"kind", "TrainingJob"},
          {"name", job.metadata().name()},
          {"uid", job.metadata().uid()},
          {"controller", true},
          {"blockOwnerDeletion", true}};
}

Json renderObject(const char* kind, const v1::TrainingJob& job, const std::string& name) {
  const v1::ObjectMeta& meta = job.metadata();
  Json labels = {{"app.kubernetes.io/instance", meta.name()},
                 {"app.kubernetes.io/part-of", "trainyard"},
                 {"app.kubernetes.io/managed-by", "trainyard-operator"}};
  labels[std::string(kJobNameLabel)] = meta.name();
  return {{"apiVersion", "v1"},
          {"kind", kind},
          {"metadata",
           {{"name", name},
            {"namespace", meta.namespace_()},
            {"labels", std::move(labels)},
            {"ownerReferences", Json::array({ownerReference(job)})}}}};
}

Json servicePorts(const v1::TrainingJob& job) {
  Json ports = Json::array();
  for (const auto& [name, port] : portsOf(job.spec().network())) {
    ports.push_back({{"name", name}, {"port", port}, {"protocol", "TCP"}});
  }
  return ports;
}

Json renderService(const v1::TrainingJob& job) {
  Json service = renderObject("Service", job, serviceName(job));
  // Without a word the apiserver takes the policy of two families for one without a selector, which
  // then, on a cluster of one, cannot get a selector again: that of a former release does, after a
  // rollback.
  service["spec"] = {{"clusterIP", "None"},
                     {"ipFamilyPolicy", "PreferDualStack"},
                     {"publishNotReadyAddresses", true},
                     {"ports", servicePorts(job)}};
  return service;
}

StatusOr<PolicyOptions> parsePolicyOptions(const std::string& text) {
  const Json given = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto isList = [&](const char* name) {
    return given.is_object() && given.contains(name) && given.at(name).is_array();
  };
  if (!isList("agentFrom") || !isList("metricsFrom")) {
    return absl::InvalidArgumentError(
        "expected a JSON object with the lists agentFrom and metricsFrom");
  }
  return PolicyOptions{given.at("agentFrom"), given.at("metricsFrom")};
}

Json renderNetworkPolicy(const v1::TrainingJob& job, const PolicyOptions& options) {
  Json policy = renderObject("NetworkPolicy", job, policyName(job));
  policy["apiVersion"] = "networking.k8s.io/v1";
  const Json tasks = {{"matchLabels", {{std::string(kJobNameLabel), job.metadata().name()}}}};
  Json ingress = Json::array({{{"from", Json::array({{{"podSelector", tasks}}})}}});
  // Without peers a rule would let everybody in.
  const auto open = [&](const Json& from, int port) {
    if (from.empty()) return;
    const Json ports = Json::array({{{"port", port}, {"protocol", "TCP"}}});
    ingress.push_back({{"from", from}, {"ports", ports}});
  };
  open(options.agent_from, job.spec().network().agent_port());
  open(options.metrics_from, job.spec().network().metrics_port());
  policy["spec"] = {{"podSelector", tasks},
                    {"policyTypes", Json::array({"Ingress"})},
                    {"ingress", std::move(ingress)}};
  return policy;
}

std::optional<TaskWait> passingStorage(const v1::TrainingJob& job) {
  if (!job.spec().has_training()) return std::nullopt;
  const v1::Storage& storage = job.spec().storage();
  if (storage.has_s3()) return std::nullopt;
  const Json volume = Json::parse(storage.volume(), nullptr, /*allow_exceptions=*/false);
  const bool given = storage.has_volume() && volume.is_object() && !volume.empty();
  if (given && !volume.contains("emptyDir")) return std::nullopt;
  const std::string& path = storage.mount_path();
  if (mountsItself(templateText(job, v1::ROLE_PS), path) ||
      mountsItself(templateText(job, v1::ROLE_WORKER), path)) {
    return std::nullopt;
  }
  return TaskWait{"NoStorageVolume",
                  fmt::format("spec.storage.volume {}: {} is an empty folder of each pod and ends "
                              "with it, and so do checkpoints",
                              given ? "is an emptyDir" : "is not set", path)};
}

std::string jobText(const v1::TrainingJob& job) {
  v1::TrainingJob told = job;
  told.clear_status();
  v1::ObjectMeta* meta = told.mutable_metadata();
  meta->clear_resource_version();
  meta->clear_generation();
  // Of these the runtime heeds one only.
  const auto timeline = meta->annotations().find(kTimelineAnnotation);
  const std::string wanted = timeline == meta->annotations().end() ? "" : timeline->second;
  meta->clear_annotations();
  if (!wanted.empty()) (*meta->mutable_annotations())[kTimelineAnnotation] = wanted;
  meta->clear_finalizers();
  meta->clear_deletion_timestamp();
  return toJson(told).dump();
}

std::string membershipText(const v1::Membership& membership) {
  std::string text;
  // Cannot fail: the message holds no Any.
  (void)google::protobuf::util::MessageToJsonString(membership, &text);
  return text;
}

StatusOr<v1::Membership> parseMembershipText(const std::string& text) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  v1::Membership membership;
  const auto parsed = google::protobuf::util::JsonStringToMessage(text, &membership, options);
  if (parsed.ok()) return membership;
  return invalidInput(kMembershipFile,
                      fmt::format("expected a membership in JSON: {}",
                                  splitFirst(parsed.message().ToString(), '\n').first));
}

Json renderMembership(const v1::TrainingJob& job, const std::optional<v1::Membership>& membership,
                      const std::string& root_id) {
  Json map = renderObject("ConfigMap", job, membershipName(job));
  map["metadata"]["annotations"][std::string(kRootAnnotation)] = root_id;
  map["data"] = {{std::string(kJobFile), jobText(job)}};
  if (membership) map["data"][std::string(kMembershipFile)] = membershipText(*membership);
  return map;
}

Json renderSecret(const v1::TrainingJob& job, const JobKeys& keys) {
  Json secret = renderObject("Secret", job, secretName(job));
  secret["type"] = "kubernetes.io/tls";
  Json& data = secret["stringData"];
  data[std::string(kTokenFile)] = keys.token;
  data["ca.crt"] = keys.task.ca;
  data["tls.crt"] = keys.task.cert;
  data["tls.key"] = keys.task.key;
  return secret;
}

}  // namespace trainyard::control
