#include "operator/kube/release_pods.h"

#include <optional>
#include <utility>

#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "operator/cache/object_store.h"
#include "operator/kube/render/names.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::json;

// The kubelet writes to the same pods.
constexpr int kAttempts = 10;

// The pod's finalizers without ours; nothing when ours is not there.
std::optional<Json> otherFinalizers(const Json& pod) {
  Json others = Json::array();
  bool is_ours = false;
  for (const Json& finalizer : pod.at("metadata").value("finalizers", Json::array())) {
    if (finalizer == Json(kResultFinalizer)) {
      is_ours = true;
    } else {
      others.push_back(finalizer);
    }
  }
  return is_ours ? std::optional<Json>(std::move(others)) : std::nullopt;
}

// Whether the pod had it.
StatusOr<bool> release(KubeClient& client, Json pod) {
  const ObjectKey key = objectKey(pod);
  const std::string uid = objectUid(pod);
  for (int attempt = 1;; ++attempt) {
    std::optional<Json> others = otherFinalizers(pod);
    if (!others || objectUid(pod) != uid) return false;
    Json patch;
    patch["metadata"] = {{"uid", uid},
                         {"resourceVersion", std::to_string(objectVersion(pod))},
                         {"finalizers", *std::move(others)}};
    const Status patched = client.patchMerge(kPods, key.ns, key.name, patch).status();
    if (patched.ok()) return true;
    if (absl::IsNotFound(patched)) return false;
    if (!absl::IsFailedPrecondition(patched) || attempt == kAttempts) {
      return annotate(patched, fmt::format("pod {}/{}", key.ns, key.name));
    }
    StatusOr<Json> newer = client.get(kPods, key.ns, key.name);
    if (absl::IsNotFound(newer.status())) return false;
    TY_RETURN_IF_ERROR(newer.status());
    pod = *std::move(newer);
  }
}

}  // namespace

StatusOr<int> releasePods(KubeClient& client, const std::string& ns) {
  ListQuery query;
  query.ns = ns;
  query.label_selector = std::string(kJobNameLabel);
  TY_ASSIGN_OR_RETURN(ListPage page, client.list(kPods, query));
  int count = 0;
  for (const auto& item : page.items) {
    TY_ASSIGN_OR_RETURN(const bool released, release(client, item));
    count += released ? 1 : 0;
  }
  return count;
}

}  // namespace trainyard::control
