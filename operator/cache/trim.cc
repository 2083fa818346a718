#include <set>
#include <string>

#include "operator/cache/reflector.h"

namespace trainyard::control {

namespace {

using Json = nlohmann::json;

constexpr char kOwnPrefix[] = "trainyard.dev/";
constexpr char kDeletionCost[] = "controller.kubernetes.io/pod-deletion-cost";

// Keeps only these members of an object.
void keepOnly(Json& object, const std::set<std::string>& names) {
  for (auto it = object.begin(); it != object.end();) {
    it = names.contains(it.key()) ? std::next(it) : object.erase(it);
  }
}

// Does `work` with each object of a list, and with nothing of what is none.
template <typename Work>
void forEach(Json& object, const char* list, const Work& work) {
  const auto found = object.find(list);
  if (found == object.end() || !found->is_array()) return;
  for (Json& item : *found) {
    if (item.is_object()) work(item);
  }
}

// Null where there is none.
Json* objectIn(Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_object() ? &*found : nullptr;
}

void trimPodMetadata(Json& metadata) {
  keepOnly(metadata, {"name", "namespace", "uid", "resourceVersion", "deletionTimestamp", "labels",
                      "annotations", "ownerReferences", "finalizers"});
  forEach(metadata, "ownerReferences", [](Json& owner) { keepOnly(owner, {"uid", "controller"}); });
  Json* const annotations = objectIn(metadata, "annotations");
  if (annotations == nullptr) return;
  for (auto it = annotations->begin(); it != annotations->end();) {
    const bool read = it.key().starts_with(kOwnPrefix) || it.key() == kDeletionCost;
    it = read ? std::next(it) : annotations->erase(it);
  }
}

void trimPodStatus(Json& status) {
  keepOnly(status, {"phase", "podIP", "reason", "message", "conditions", "initContainerStatuses",
                    "containerStatuses"});
  forEach(status, "conditions", [](Json& one) {
    keepOnly(one, {"type", "status", "reason", "message"});
  });
  for (const char* list : {"initContainerStatuses", "containerStatuses"}) {
    forEach(status, list, [](Json& one) { keepOnly(one, {"name", "state", "ready", "image"}); });
  }
}

}  // namespace

void trimObject(Json& object) {
  const auto metadata = object.find("metadata");
  if (metadata == object.end() || !metadata->is_object()) return;
  metadata->erase("managedFields");
  const auto annotations = metadata->find("annotations");
  if (annotations == metadata->end() || !annotations->is_object()) return;
  annotations->erase("kubectl.kubernetes.io/last-applied-configuration");
}

void trimPod(Json& pod) {
  trimObject(pod);
  if (!pod.is_object()) return;
  if (Json* const metadata = objectIn(pod, "metadata")) trimPodMetadata(*metadata);
  if (Json* const spec = objectIn(pod, "spec")) keepOnly(*spec, {"nodeName"});
  if (Json* const status = objectIn(pod, "status")) trimPodStatus(*status);
}

}  // namespace trainyard::control
