#include "operator/kube/mending.h"

#include <set>
#include <string>
#include <tuple>

#include "base/json/members.h"
#include "operator/kube/render/names.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::json;

using Port = std::tuple<std::string, int, std::string>;

std::set<Port> portsOf(const Json& spec) {
  std::set<Port> ports;
  for (const Json& port : member(spec, "ports"))
    ports.emplace(textAt(port, "name"), numberAt(port, "port"), textAt(port, "protocol"));
  return ports;
}

Json ofSpec(Json patch) {
  return patch.empty() ? Json() : Json::object({{"spec", std::move(patch)}});
}

}  // namespace

Json mergePatchTo(const Json& found, const Json& wanted) {
  if (!found.is_object() || !wanted.is_object()) return wanted;
  Json patch = Json::object();
  for (const auto& [name, unused] : found.items()) {
    if (!wanted.contains(name)) patch[name] = nullptr;
  }
  for (const auto& [name, value] : wanted.items()) {
    const Json& now = member(found, name);
    if (now != value) patch[name] = mergePatchTo(now, value);
  }
  return patch;
}

Json servicePatch(const Json& found, const Json& wanted) {
  const Json& is = member(found, "spec");
  const Json& should = member(wanted, "spec");
  Json patch = Json::object();
  if (portsOf(is) != portsOf(should)) patch["ports"] = member(should, "ports");
  const Json &open = member(is, "publishNotReadyAddresses"), &selector = member(is, "selector");
  if (open != member(should, "publishNotReadyAddresses"))
    patch["publishNotReadyAddresses"] = member(should, "publishNotReadyAddresses");
  const Json& job =
      member(member(member(wanted, "metadata"), "labels"), std::string(kJobNameLabel));
  const Json of_its_pods = {{std::string(kJobNameLabel), job}};
  if (!selector.is_null() && selector != of_its_pods) patch["selector"] = nullptr;
  return ofSpec(std::move(patch));
}

Json endpointSlicePatch(const Json& found, const Json& wanted) {
  Json patch = Json::object();
  for (const char* field : {"ports", "endpoints"}) {
    if (member(found, field) != member(wanted, field)) patch[field] = member(wanted, field);
  }
  return patch.empty() ? Json() : patch;
}

Json podGroupPatch(const Json& found, const Json& wanted) {
  Json patch = Json::object();
  for (const auto& [name, value] : member(wanted, "spec").items()) {
    if (member(member(found, "spec"), name) != value) patch[name] = value;
  }
  return ofSpec(std::move(patch));
}

Json networkPolicyPatch(const Json& found, const Json& wanted) {
  return ofSpec(mergePatchTo(member(found, "spec"), member(wanted, "spec")));
}

}  // namespace trainyard::control
