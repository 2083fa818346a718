// Where the pods of a job go that was granted quota.
#include "gmock/gmock.h"
#include "operator/kube/kueue/workload.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::json;
using Ordered = nlohmann::ordered_json;
using testing::ElementsAre;

const Json kAdmitted = Json::parse(R"({"status": {
  "admission": {"podSetAssignments": [
    {"name": "ps", "flavors": {"cpu": "plain"}},
    {"name": "worker", "flavors": {"cpu": "plain", "nvidia.com/gpu": "h100"}}]},
  "admissionChecks": [{"name": "provision", "podSetUpdates": [
    {"name": "worker", "labels": {"of": "check"}, "annotations": {"note": "here"},
     "nodeSelector": {"booked": "yes"}, "tolerations": [{"key": "booked"}]}]}]}})");
const std::map<std::string, Json> kFlavors = {
    {"plain", Json::parse(R"({"nodeLabels": {"pool": "plain"}})")},
    {"h100", Json::parse(R"({"nodeLabels": {"gpu": "h100"},
                             "tolerations": [{"key": "gpu", "operator": "Exists"}]})")}};

Ordered placed(v1::Role role, Ordered pod) {
  placeOnFlavors(kAdmitted, role, kFlavors, pod);
  return pod;
}

TEST(PlacementTest, FlavorsAreThoseOfTheRole) {
  EXPECT_THAT(flavorsOf(kAdmitted, v1::ROLE_PS), ElementsAre("plain"));
  EXPECT_THAT(flavorsOf(kAdmitted, v1::ROLE_WORKER), ElementsAre("h100", "plain"));
  EXPECT_TRUE(flavorsOf(Json(), v1::ROLE_PS).empty());
}

TEST(PlacementTest, PodsGoToTheNodesOfTheirFlavors) {
  const Ordered pod = placed(v1::ROLE_WORKER, Ordered::parse(R"({"metadata": {"labels": {"a": "b"}},
      "spec": {"nodeSelector": {"disk": "ssd"},
               "tolerations": [{"key": "gpu", "operator": "Exists"}]}})"));
  EXPECT_EQ(Json(pod["spec"]["nodeSelector"]),
            Json::parse(R"({"disk": "ssd", "pool": "plain", "gpu": "h100", "booked": "yes"})"));
  EXPECT_EQ(Json(pod["spec"]["tolerations"]),
            Json::parse(R"([{"key": "gpu", "operator": "Exists"}, {"key": "booked"}])"))
      << "none twice";
  EXPECT_EQ(Json(pod["metadata"]["labels"]), Json::parse(R"({"a": "b", "of": "check"})"));
  EXPECT_EQ(pod["metadata"]["annotations"]["note"], "here");
}

TEST(PlacementTest, WhatIsOfAnotherRoleIsLeftAlone) {
  const Ordered pod = placed(v1::ROLE_PS, Ordered::parse(R"({"metadata": {}, "spec": {}})"));
  EXPECT_EQ(Json(pod),
            Json::parse(R"({"metadata": {}, "spec": {"nodeSelector": {"pool": "plain"}}})"));
}

}  // namespace
}  // namespace trainyard::control
