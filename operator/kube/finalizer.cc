#include "operator/kube/finalizer.h"

#include <string>
#include <utility>

#include "fmt/format.h"
#include "operator/cache/object_store.h"
#include "operator/kube/observe/observe.h"
#include "operator/kube/render/names.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::json;

constexpr int kAttempts = 10;

// Takes it off if this is the pod as the apiserver has it.
Json patchWithout(const Json& pod) {
  Json others = Json::array();
  for (const Json& finalizer : pod["metadata"]["finalizers"]) {
    if (finalizer != Json(kResultFinalizer)) others.push_back(finalizer);
  }
  Json patch;
  patch["metadata"] = {{"uid", objectUid(pod)},
                       {"resourceVersion", std::to_string(objectVersion(pod))},
                       {"finalizers", std::move(others)}};
  return patch;
}

}  // namespace

StatusOr<std::optional<Json>> removeResultFinalizer(KubeClient& client, Json pod) {
  const ObjectKey key = objectKey(pod);
  const std::string uid = objectUid(pod);
  for (int attempt = 1;; ++attempt) {
    if (!hasFinalizer(pod, kResultFinalizer) || objectUid(pod) != uid) return std::nullopt;
    StatusOr<Json> patched = client.patchMerge(kPods, key.ns, key.name, patchWithout(pod));
    if (patched.ok()) return std::optional<Json>(*std::move(patched));
    if (absl::IsNotFound(patched.status())) return std::nullopt;
    const std::string what = fmt::format("pod {}/{}", key.ns, key.name);
    if (!absl::IsFailedPrecondition(patched.status()) || attempt == kAttempts) {
      return annotate(patched.status(), what);
    }
    StatusOr<Json> newer = client.get(kPods, key.ns, key.name);
    if (absl::IsNotFound(newer.status())) return std::nullopt;
    TY_RETURN_IF_ERROR(annotate(newer.status(), what));
    pod = *std::move(newer);
  }
}

}  // namespace trainyard::control
