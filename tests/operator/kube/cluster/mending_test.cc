#include "operator/kube/mending.h"

#include "gtest/gtest.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::json;

Json merged(Json found, const Json& wanted) {
  found.merge_patch(mergePatchTo(found, wanted));
  return found;
}

TEST(MendingTest, AMergeMakesOneObjectTheOther) {
  const Json wanted = Json::parse(R"({"a": 1, "b": {"c": [1, 2], "d": {"e": true}}})");
  for (const char* found :
       {"{}", R"({"a": 1})", R"({"a": {"x": 1}, "b": 2})", R"({"x": {"y": 1}, "b": {"c": [1]}})",
        R"({"a": 1, "b": {"c": [1, 2, 3], "d": {"e": true, "f": 1}}})"})
    EXPECT_EQ(merged(Json::parse(found), wanted), wanted) << found;
  EXPECT_EQ(mergePatchTo(wanted, wanted), Json::object());
}

const Json kService = Json::parse(R"({"metadata": {"labels": {"trainyard.dev/job-name": "a"}},
    "spec": {"clusterIP": "None", "publishNotReadyAddresses": true,
    "ports": [{"name": "task", "port": 2222, "protocol": "TCP"}]}})");

TEST(MendingTest, AServiceKeepsWhatTheApiserverAdds) {
  Json found = kService;
  found["spec"]["ipFamilies"] = {"IPv4"};
  found["spec"]["ports"][0]["targetPort"] = 2222;
  EXPECT_TRUE(servicePatch(found, kService).is_null());
  found["spec"]["ports"][0]["protocol"] = "UDP";
  found["spec"]["publishNotReadyAddresses"] = false;
  found["spec"]["selector"]["of"] = "others";
  EXPECT_EQ(servicePatch(found, kService), (Json{{"spec",
                                                  {{"ports", kService["spec"]["ports"]},
                                                   {"publishNotReadyAddresses", true},
                                                   {"selector", nullptr}}}}));
}

// Without it Kubernetes would leave the addresses that it knew last.
TEST(MendingTest, AServiceOfAFormerReleaseKeepsItsSelector) {
  Json found = kService;
  found["spec"]["selector"] = {{"trainyard.dev/job-name", "a"}};
  EXPECT_TRUE(servicePatch(found, kService).is_null());
  found["spec"]["selector"] = {{"trainyard.dev/job-name", "b"}};
  EXPECT_EQ(servicePatch(found, kService), Json::parse(R"({"spec": {"selector": null}})"));
}

TEST(MendingTest, AnEndpointSliceHasOurAddressesAndPorts) {
  const Json wanted = Json::parse(R"({"metadata": {"name": "a"}, "addressType": "IPv4",
      "ports": [{"port": 1}], "endpoints": [{"addresses": ["10.0.0.1"]}]})");
  Json found = wanted;
  found["metadata"]["uid"] = "u";
  EXPECT_TRUE(endpointSlicePatch(found, wanted).is_null());
  found["endpoints"][0]["addresses"] = {"10.0.0.2"};
  EXPECT_EQ(endpointSlicePatch(found, wanted), (Json{{"endpoints", wanted["endpoints"]}}));
}

TEST(MendingTest, ANetworkPolicyIsAsItIsRendered) {
  const Json wanted = Json::parse(R"({"spec": {"podSelector": {"matchLabels": {"job": "a"}}}})");
  EXPECT_TRUE(networkPolicyPatch(wanted, wanted).is_null());
  Json found = wanted;
  found["spec"]["podSelector"]["matchLabels"]["of"] = "others";
  found["spec"]["egress"] = Json::array();
  found.merge_patch(networkPolicyPatch(found, wanted));
  EXPECT_EQ(found, wanted);
}

TEST(MendingTest, APodGroupKeepsWhatItsSchedulerAdds) {
  const Json wanted = Json::parse(R"({"spec": {"minMember": 3}})");
  Json found = Json::parse(R"({"spec": {"minMember": 3, "queue": "default"}, "status": {}})");
  EXPECT_TRUE(podGroupPatch(found, wanted).is_null());
  found["spec"]["minMember"] = 5;
  EXPECT_EQ(podGroupPatch(found, wanted), wanted);
}

}  // namespace
}  // namespace trainyard::control
