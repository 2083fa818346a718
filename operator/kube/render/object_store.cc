#include "operator/kube/render/internal/object_store.h"

#include "base/core/object_path.h"
#include "fmt/format.h"

namespace trainyard::control::internal {
namespace {

constexpr const char* kVolume = "trainyard-s3";
constexpr const char* kFolder = "/etc/trainyard/s3";
constexpr const char* kCaFile = "ca.crt";

void setVariable(Json& container, const char* name, Json entry) {
  entry["name"] = name;
  addUnlessThere(listIn(container, "env"), "name", std::move(entry));
}

Json fromSecret(const std::string& secret, const char* key, bool optional) {
  Json reference = {{"name", secret}, {"key", key}};
  if (optional) reference["optional"] = true;
  return {{"valueFrom", {{"secretKeyRef", std::move(reference)}}}};
}

}  // namespace

std::string checkpointPlace(const v1::TrainingJob& job) {
  if (!job.spec().storage().has_s3()) return "";
  const v1::ObjectStore& store = job.spec().storage().s3();
  const v1::ObjectMeta& meta = job.metadata();
  const std::string prefix =
      store.has_prefix() ? store.prefix() : fmt::format("{}/{}", meta.namespace_(), meta.name());
  return fmt::format("{}{}/{}/checkpoints", kObjectScheme, store.bucket(), prefix);
}

void reachObjectStore(const v1::TrainingJob& job, Json& spec, Json& container) {
  if (!job.spec().storage().has_s3()) return;
  const v1::ObjectStore& store = job.spec().storage().s3();
  if (store.has_endpoint())
    setVariable(container, "AWS_ENDPOINT_URL_S3", {{"value", store.endpoint()}});
  setVariable(container, "AWS_REGION", {{"value", store.region()}});
  if (!store.has_secret_name()) return;
  const std::string& secret = store.secret_name();
  for (const char* key : {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"})
    setVariable(container, key, fromSecret(secret, key, /*optional=*/false));
  setVariable(container, "AWS_SESSION_TOKEN",
              fromSecret(secret, "AWS_SESSION_TOKEN", /*optional=*/true));
  if (!store.has_ca_key()) return;
  setVariable(container, "AWS_CA_BUNDLE", {{"value", fmt::format("{}/{}", kFolder, kCaFile)}});
  const Json item = {{"key", store.ca_key()}, {"path", kCaFile}};
  addUnlessThere(
      listIn(spec, "volumes"), "name",
      {{"name", kVolume}, {"secret", {{"secretName", secret}, {"items", Json::array({item})}}}});
  addUnlessThere(listIn(container, "volumeMounts"), "mountPath",
                 {{"name", kVolume}, {"mountPath", kFolder}, {"readOnly", true}});
}

}  // namespace trainyard::control::internal
