// Source: the EndpointSlice of discovery.k8s.io/v1. Its fields are what Kubernetes' own controller
// fills in for the pods of a Service that publishes those which are not ready.
#include <arpa/inet.h>
#include <netinet/in.h>

#include <optional>
#include <string_view>
#include <utility>

#include "fmt/format.h"
#include "operator/kube/render/names.h"
#include "operator/kube/render/render.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::ordered_json;

// As many as the apiserver takes, which leaves the other members out of it.
constexpr std::size_t kMostEndpoints = 1000;

// Of those that the apiserver takes: the address of one host, which others reach (Kubernetes'
// ValidateEndpointIP). A pod with another one has no name, and works without as far as it can.
std::optional<std::string_view> addressType(const std::string& ip) {
  in_addr v4{};
  if (::inet_pton(AF_INET, ip.c_str(), &v4) == 1) {
    const std::uint32_t bits = ntohl(v4.s_addr);
    const bool link_local = bits >> 16 == 0xA9FE;  // 169.254.0.0/16
    const bool special = bits == INADDR_ANY || bits >> 24 == IN_LOOPBACKNET || link_local ||
                         bits >> 8 == INADDR_UNSPEC_GROUP >> 8;
    return special ? std::nullopt : std::optional<std::string_view>("IPv4");
  }
  in6_addr v6{};
  if (::inet_pton(AF_INET6, ip.c_str(), &v6) != 1) return std::nullopt;
  const bool special = IN6_IS_ADDR_UNSPECIFIED(&v6) || IN6_IS_ADDR_LOOPBACK(&v6) ||
                       IN6_IS_ADDR_LINKLOCAL(&v6) || IN6_IS_ADDR_MC_LINKLOCAL(&v6);
  return special ? std::nullopt : std::optional<std::string_view>("IPv6");
}

Json endpointOf(const v1::TrainingJob& job, const v1::MemberTask& member) {
  const std::string pod = podName(job, {member.id().role(), member.id().index()});
  return {
      {"addresses", {member.ip()}},
      {"conditions", {{"ready", true}}},
      {"hostname", pod},
      {"targetRef", {{"kind", "Pod"}, {"namespace", job.metadata().namespace_()}, {"name", pod}}},
  };
}

Json sliceOf(const v1::TrainingJob& job, std::string_view type, std::string name, Json endpoints) {
  Json slice = renderObject("EndpointSlice", job, std::move(name));
  slice["apiVersion"] = "discovery.k8s.io/v1";
  Json& labels = slice["metadata"]["labels"];
  labels["kubernetes.io/service-name"] = serviceName(job);
  labels["endpointslice.kubernetes.io/managed-by"] = "trainyard-operator";
  slice["addressType"] = type;
  slice["ports"] = servicePorts(job);
  slice["endpoints"] = std::move(endpoints);
  return slice;
}

}  // namespace

std::vector<Json> renderEndpointSlices(const v1::TrainingJob& job,
                                       const v1::Membership& membership) {
  std::vector<Json> slices;
  // A slice holds addresses of one family.
  for (const auto& [type, prefix] : {std::pair{"IPv4", "ipv4"}, {"IPv6", "ipv6"}}) {
    std::vector<Json> parts;
    for (const v1::MemberTask& member : membership.tasks()) {
      if (addressType(member.ip()) != type) continue;
      if (parts.empty() || parts.back().size() == kMostEndpoints) parts.push_back(Json::array());
      parts.back().push_back(endpointOf(job, member));
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      slices.push_back(sliceOf(job, type, fmt::format("{}-{}-{}", job.metadata().name(), prefix, i),
                               std::move(parts[i])));
    }
  }
  return slices;
}

}  // namespace trainyard::control
