#include "operator/kube/mending.h"

#include <set>
#include <string>
#include <tuple>

#include "base/json/members.h"

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
  for (const char* field : {"publishNotReadyAddresses", "selector"}) {
    const Json &now = member(is, field), &value = member(should, field);
    if (now != value) patch[field] = mergePatchTo(now, value);
  }
  return ofSpec(std::move(patch));
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
