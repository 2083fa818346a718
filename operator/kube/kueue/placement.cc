// Where the pods of a job go that was granted quota.
#include <algorithm>

#include "base/json/members.h"
#include "operator/kube/kueue/workload.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::json;
using Ordered = nlohmann::ordered_json;

void addAll(const Json& from, Ordered& object, const char* name) {
  if (!from.is_object() || from.empty()) return;
  Ordered& to = object[name];
  if (to.is_null()) to = Ordered::object();
  for (const auto& [key, value] : from.items()) to[key] = value;
}

void addTolerations(const Json& from, Ordered& spec) {
  if (!from.is_array() || from.empty()) return;
  Ordered& to = spec["tolerations"];
  if (to.is_null()) to = Ordered::array();
  for (const Json& one : from) {
    const bool there =
        std::any_of(to.begin(), to.end(), [&](const Ordered& other) { return Json(other) == one; });
    if (!there) to.push_back(Ordered(one));
  }
}

bool isOf(const Json& item, v1::Role role) {
  return textAt(item, "name") == roleName(role);
}

}  // namespace

std::set<std::string> flavorsOf(const Json& workload, v1::Role role) {
  std::set<std::string> names;
  const Json& admission = member(member(workload, "status"), "admission");
  for (const Json& assignment : member(admission, "podSetAssignments")) {
    if (!isOf(assignment, role)) continue;
    for (const auto& [resource, flavor] : member(assignment, "flavors").items()) {
      if (flavor.is_string()) names.insert(flavor.get<std::string>());
    }
  }
  return names;
}

void placeOnFlavors(const Json& workload, v1::Role role, const std::map<std::string, Json>& flavors,
                    Ordered& pod) {
  Ordered& spec = pod["spec"];
  for (const std::string& name : flavorsOf(workload, role)) {
    const auto flavor = flavors.find(name);
    if (flavor == flavors.end()) continue;
    addAll(member(flavor->second, "nodeLabels"), spec, "nodeSelector");
    addTolerations(member(flavor->second, "tolerations"), spec);
  }
  for (const Json& check : member(member(workload, "status"), "admissionChecks")) {
    for (const Json& update : member(check, "podSetUpdates")) {
      if (!isOf(update, role)) continue;
      addAll(member(update, "labels"), pod["metadata"], "labels");
      addAll(member(update, "annotations"), pod["metadata"], "annotations");
      addAll(member(update, "nodeSelector"), pod["spec"], "nodeSelector");
      addTolerations(member(update, "tolerations"), pod["spec"]);
    }
  }
}

}  // namespace trainyard::control
