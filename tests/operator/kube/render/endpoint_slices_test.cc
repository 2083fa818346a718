#include <string>
#include <vector>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "operator/kube/render/names.h"
#include "operator/kube/render/render.h"

namespace trainyard::control {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Pointer = OrderedJson::json_pointer;

v1::TrainingJob programsJob() {
  v1::TrainingJob job;
  job.mutable_metadata()->set_name("fashion");
  job.mutable_metadata()->set_namespace_("team");
  job.mutable_metadata()->set_uid("0123456789abcdef");
  job.mutable_spec()->mutable_network()->set_task_port(2222);
  return job;
}

v1::Membership workersAt(const std::vector<std::string>& ips) {
  v1::Membership membership;
  for (std::uint32_t i = 0; i < ips.size(); ++i) {
    v1::MemberTask* task = membership.add_tasks();
    task->mutable_id()->set_role(v1::ROLE_WORKER);
    task->mutable_id()->set_index(i);
    task->set_ip(ips[i]);
  }
  return membership;
}

TEST(EndpointSlices, NameTheMembers) {
  const v1::TrainingJob job = programsJob();
  // One that was never told of has no address.
  const auto slices = renderEndpointSlices(job, workersAt({"10.0.0.1", "fd00::1", "", "10.0.0.2"}));
  ASSERT_EQ(slices.size(), 2U);
  const OrderedJson& slice = slices[0];
  EXPECT_EQ(slice.at(Pointer("/kind")), "EndpointSlice");
  EXPECT_EQ(slice.at(Pointer("/metadata/name")), "fashion-ipv4-0");
  EXPECT_EQ(slice.at(Pointer("/metadata/labels/kubernetes.io~1service-name")), serviceName(job));
  EXPECT_EQ(slice.at(Pointer("/metadata/ownerReferences/0/uid")), "0123456789abcdef");
  EXPECT_EQ(slice.at(Pointer("/addressType")), "IPv4");
  EXPECT_EQ(slice.at(Pointer("/ports")), renderService(job).at(Pointer("/spec/ports")));
  ASSERT_EQ(slice["endpoints"].size(), 2U);
  EXPECT_EQ(slice.at(Pointer("/endpoints/0/addresses")), OrderedJson::array({"10.0.0.1"}));
  EXPECT_EQ(slice.at(Pointer("/endpoints/1/addresses")), OrderedJson::array({"10.0.0.2"}));
  EXPECT_EQ(slice.at(Pointer("/endpoints/1/conditions/ready")), true);
  // The name that others are told: podHost() begins with it.
  EXPECT_EQ(slice.at(Pointer("/endpoints/1/hostname")), podName(job, {v1::ROLE_WORKER, 3}));
  EXPECT_EQ(slice.at(Pointer("/endpoints/1/targetRef/name")), podName(job, {v1::ROLE_WORKER, 3}));
  EXPECT_EQ(slices[1].at(Pointer("/metadata/name")), "fashion-ipv6-0");
  EXPECT_EQ(slices[1].at(Pointer("/addressType")), "IPv6");
  EXPECT_EQ(slices[1].at(Pointer("/endpoints/0/addresses")), OrderedJson::array({"fd00::1"}));
  EXPECT_TRUE(renderEndpointSlices(job, {}).empty());
}

// The apiserver refuses a slice with one of them, and with it the whole job's names.
TEST(EndpointSlices, LeaveOutWhatReachesNobodyElse) {
  for (const char* ip : {"", "127.0.0.1", "127.100.0.2", "0.0.0.0", "169.254.1.1", "224.0.0.1",
                         "::", "::1", "fe80::1", "ff02::1", "10.0.0"})
    EXPECT_TRUE(renderEndpointSlices(programsJob(), workersAt({ip})).empty()) << ip;
  for (const char* ip : {"10.0.0.1", "172.16.0.1", "169.253.0.1", "239.0.0.1", "fd00::1"})
    EXPECT_EQ(renderEndpointSlices(programsJob(), workersAt({ip})).size(), 1U) << ip;
}

// The apiserver takes 1,000 in one of them.
TEST(EndpointSlices, OfManyMembersAreSeveral) {
  std::vector<std::string> ips;
  for (int i = 0; i < 2001; ++i) ips.push_back(fmt::format("10.0.{}.{}", i / 250, i % 250));
  const auto slices = renderEndpointSlices(programsJob(), workersAt(ips));
  ASSERT_EQ(slices.size(), 3U);
  EXPECT_EQ(slices[0]["endpoints"].size(), 1000U);
  EXPECT_EQ(slices[2]["endpoints"].size(), 1U);
  EXPECT_EQ(slices[2].at(Pointer("/metadata/name")), "fashion-ipv4-2");
  EXPECT_EQ(slices[2].at(Pointer("/endpoints/0/addresses")), OrderedJson::array({"10.0.8.0"}));
}

}  // namespace
}  // namespace trainyard::control
