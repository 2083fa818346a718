#include <set>
#include <string>

#include "operator/cache/reflector.h"

namespace trainyard::control {

namespace {

using Json = nlohmann::json;

// Keeps only these members of an object.
void keepOnly(Json& object, const std::set<std::string>& names) {
  for (auto it = object.begin(); it != object.end();) {
    it = names.contains(it.key()) ? std::next(it) : object.erase(it);
  }
}

void namesOnly(Json& containers) {
  if (!containers.is_array()) return;
  for (Json& container : containers) {
    if (container.is_object()) keepOnly(container, {"name"});
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
  const auto spec = pod.find("spec");
  if (spec == pod.end() || !spec->is_object()) return;
  keepOnly(*spec, {"nodeName", "containers", "hostNetwork", "subdomain", "hostname"});
  if (spec->contains("containers")) namesOnly((*spec)["containers"]);
}

}  // namespace trainyard::control
