#include "base/core/strings.h"
#include "base/json/proto_json.h"
#include "fmt/format.h"
#include "google/protobuf/util/json_util.h"
#include "operator/kube/render/names.h"
#include "operator/kube/render/render.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::ordered_json;

Json object(const char* kind, const v1::TrainingJob& job, const std::string& name) {
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

}  // namespace

Json ownerReference(const v1::TrainingJob& job) {
  return {{"apiVersion", "trainyard.dev/v1alpha1"},
          {"kind", "TrainingJob"},
          {"name", job.metadata().name()},
          {"uid", job.metadata().uid()},
          {"controller", true},
          {"blockOwnerDeletion", true}};
}

Json renderService(const v1::TrainingJob& job) {
  Json service = object("Service", job, serviceName(job));
  const v1::Network& network = job.spec().network();
  Json ports = Json::array();
  const std::pair<const char*, int> ours[] = {{"task", network.task_port()},
                                              {"agent", network.agent_port()},
                                              {"metrics", network.metrics_port()}};
  for (const auto& [name, port] : ours) {
    ports.push_back({{"name", name}, {"port", port}, {"protocol", "TCP"}});
  }
  service["spec"] = {{"clusterIP", "None"},
                     {"publishNotReadyAddresses", true},
                     {"selector", {{std::string(kJobNameLabel), job.metadata().name()}}},
                     {"ports", std::move(ports)}};
  return service;
}

std::string jobText(const v1::TrainingJob& job) {
  v1::TrainingJob told = job;
  told.clear_status();
  v1::ObjectMeta* meta = told.mutable_metadata();
  meta->clear_resource_version();
  meta->clear_generation();
  meta->clear_annotations();
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

Json renderMembership(const v1::TrainingJob& job, const std::optional<v1::Membership>& membership) {
  Json map = object("ConfigMap", job, membershipName(job));
  map["data"] = {{std::string(kJobFile), jobText(job)}};
  if (membership) map["data"][std::string(kMembershipFile)] = membershipText(*membership);
  return map;
}

Json renderSecret(const v1::TrainingJob& job, const std::string& token) {
  Json secret = object("Secret", job, secretName(job));
  secret["type"] = "Opaque";
  secret["stringData"] = {{std::string(kTokenFile), token}};
  return secret;
}

}  // namespace trainyard::control
