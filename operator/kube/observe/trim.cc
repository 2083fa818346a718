// What of a pod is kept while nobody looks at it. A member that another .cc file of this folder, or
// KubeCluster, begins to read is named here too.
#include <iterator>
#include <set>
#include <string>
#include <string_view>

#include "operator/cache/reflector.h"
#include "operator/kube/observe/observe.h"
#include "operator/kube/render/names.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::json;

const std::set<std::string_view> kRead = {kTaskContainerAnnotation, kRevisionAnnotation,
                                          kDeletionCostAnnotation};

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
    it = kRead.contains(it.key()) ? std::next(it) : annotations->erase(it);
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

void trimPod(Json& pod) {
  trimObject(pod);
  if (!pod.is_object()) return;
  if (Json* const metadata = objectIn(pod, "metadata")) trimPodMetadata(*metadata);
  if (Json* const spec = objectIn(pod, "spec")) keepOnly(*spec, {"nodeName"});
  if (Json* const status = objectIn(pod, "status")) trimPodStatus(*status);
}

}  // namespace trainyard::control
