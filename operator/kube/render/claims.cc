#include "operator/kube/render/internal/claims.h"

#include "fmt/format.h"
#include "operator/cluster/volume_claims.h"
#include "operator/job/template.h"
#include "operator/kube/render/names.h"

namespace trainyard::control {

using internal::Json;

namespace {

// Ours hold, where a template has the same labels.
void addTexts(Json& metadata, const char* key,
              const google::protobuf::Map<std::string, std::string>& given) {
  if (given.empty()) return;
  Json& texts = internal::objectIn(metadata, key);
  const std::map<std::string, std::string> sorted(given.begin(), given.end());
  for (const auto& [name, value] : sorted) internal::fill(texts, name, value);
}

}  // namespace

std::vector<Json> renderClaims(const v1::TrainingJob& job, const TaskKey& task) {
  std::vector<Json> claims;
  for (const v1::VolumeClaimTemplate& given : claimTemplates(job.spec(), task.role)) {
    Json claim =
        renderObject("PersistentVolumeClaim", job, claimName(given.metadata().name(), job, task));
    Json& metadata = claim["metadata"];
    metadata["labels"][std::string(kRoleLabel)] = roleName(task.role);
    metadata["labels"][std::string(kIndexLabel)] = std::to_string(task.index);
    addTexts(metadata, "labels", given.metadata().labels());
    addTexts(metadata, "annotations", given.metadata().annotations());
    if (!claimsGoWithTheJob(job.spec(), task.role)) metadata.erase("ownerReferences");
    const Json spec = Json::parse(given.spec(), nullptr, /*allow_exceptions=*/false);
    claim["spec"] = spec.is_object() ? spec : Json::object();
    claims.push_back(std::move(claim));
  }
  return claims;
}

namespace internal {

Status checkClaims(const v1::TrainingJob& job, v1::Role role, const Json& pod) {
  const ClaimTemplates& claims = claimTemplates(job.spec(), role);
  Json volumes = pod.value(Json::json_pointer("/spec/volumes"), Json::array());
  for (int i = 0; i < claims.size(); ++i) {
    const std::string& name = claims[i].metadata().name();
    if (!volumes.is_array() || itemWith(volumes, "name", name) == nullptr) continue;
    return invalidInput(
        fmt::format("spec.{}.volumeClaimTemplates[{}].metadata.name", roleName(role), i),
        fmt::format("{} has a volume {} already", templatePath(role), name));
  }
  return absl::OkStatus();
}

void addClaimVolumes(const v1::TrainingJob& job, const TaskKey& task, Json& spec) {
  for (const v1::VolumeClaimTemplate& given : claimTemplates(job.spec(), task.role)) {
    const std::string& name = given.metadata().name();
    listIn(spec, "volumes")
        .push_back({{"name", name},
                    {"persistentVolumeClaim", {{"claimName", claimName(name, job, task)}}}});
  }
}

}  // namespace internal

}  // namespace trainyard::control
