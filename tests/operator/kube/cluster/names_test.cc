// The names by which tasks of a user's own program find one another, and when they are there.
#include "operator/kube/render/names.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/process/temp_dir.h"
#include "tests/operator/kube/cluster/memory_cluster_test.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;

class NamesTest : public MemoryClusterTest {
 protected:
  const JobKey key_{"lab", "job"};
  const std::string slices_ = "/apis/discovery.k8s.io/v1/namespaces/lab/endpointslices";
  const std::string slice_ = slices_ + "/job-ipv4-0";
  const std::string service_ = "/api/v1/namespaces/lab/services/job";
  const std::string job_path_ = "/apis/trainyard.dev/v1alpha1/namespaces/lab/trainingjobs/job";
  const std::string membership_ = "/api/v1/namespaces/lab/configmaps/job-membership";

  void start(Duration shared_every = std::chrono::hours(1)) {
    server_.put(job_path_, Json::parse(R"({"kind": "TrainingJob",
        "metadata": {"namespace": "lab", "name": "job", "uid": "u1", "generation": 1},
        "spec": {"strategy": "AllReduce", "storage": {"mountPath": "/job"}, "worker": {"replicas": 1,
          "template": {"spec": {"containers": [{"name": "task", "image": "a", "command": ["b"]}]}}},
          "network": {"taskPort": 2222, "agentPort": 2230, "metricsPort": 2231}}})"));
    KubeClusterOptions options = labOptions();
    options.shared_every = shared_every;
    startWith(options);
  }
  JobObservation seen() {
    StatusOr<JobObservation> now = absl::UnknownError("not asked");
    EXPECT_TRUE(eventually([&] { return (now = cluster_->observe(key_)).ok(); })) << now.status();
    return now.ok() ? *now : JobObservation{};
  }
  // The worker's pod, and what all tasks share.
  void createWorker() {
    ASSERT_TRUE(cluster_->createTask(seen().job, {v1::ROLE_WORKER, 0}, 1).ok());
  }
  // Workers at these addresses, after the membership that is recorded.
  Status publish(const std::vector<std::string>& ips) {
    const JobObservation now = seen();
    v1::Membership membership;
    membership.set_uid("u1");
    membership.set_revision(now.membership ? now.membership->revision() + 1 : 1);
    for (std::uint32_t i = 0; i < ips.size(); ++i) {
      v1::MemberTask* task = membership.add_tasks();
      task->mutable_id()->set_role(v1::ROLE_WORKER);
      task->mutable_id()->set_index(i);
      task->set_ip(ips[i]);
    }
    return cluster_->publish(now.job, membership);
  }
  // The addresses in a slice.
  std::vector<std::string> told(const std::string& slice) const {
    std::vector<std::string> addresses;
    const Json found = server_.get(slice).value_or(Json{{"endpoints", Json::array()}});
    for (const Json& endpoint : found["endpoints"]) addresses.push_back(endpoint["addresses"][0]);
    return addresses;
  }
  void refuseSlices(const char* method, HttpResponse answer) {
    server_.refuse([method, answer](const HttpRequest& request) -> std::optional<HttpResponse> {
      const bool one = request.target.find("/endpointslices") != std::string::npos;
      return one && request.method == method ? std::optional(answer) : std::nullopt;
    });
  }
};

// Members look one another up when they are told of them.
TEST_F(NamesTest, AreThereBeforeTheMembersAreTold) {
  start();
  createWorker();
  EXPECT_FALSE(server_.get(slice_).has_value()) << "no address is known";
  ASSERT_TRUE(publish({"10.0.0.1", "10.0.0.2"}).ok());
  EXPECT_THAT(told(slice_), ElementsAre("10.0.0.1", "10.0.0.2"));
  const std::vector<std::string> calls = server_.calls();
  const auto named = std::ranges::find(calls, "POST " + slices_);
  const auto recorded = std::ranges::find(calls, "PATCH " + membership_);
  EXPECT_LT(named - calls.begin(), recorded - calls.begin()) << testing::PrintToString(calls);
  ASSERT_NE(recorded, calls.end());
  // A task has come back elsewhere.
  ASSERT_TRUE(publish({"10.0.0.1", "10.0.0.7"}).ok());
  EXPECT_THAT(told(slice_), ElementsAre("10.0.0.1", "10.0.0.7"));
}

TEST_F(NamesTest, MembersThatCannotBeNamedAreNotTold) {
  start();
  createWorker();
  refuseSlices("POST", MemoryApiserver::failure(403, "Forbidden"));
  EXPECT_TRUE(absl::IsPermissionDenied(publish({"10.0.0.1"})));
  EXPECT_FALSE(seen().membership.has_value());
  ASSERT_TRUE(seen().refusal.has_value());
  EXPECT_EQ(seen().refusal->reason, "CreationForbidden");
  server_.refuse({});
  EXPECT_TRUE(publish({"10.0.0.1"}).ok());
  EXPECT_FALSE(seen().refusal.has_value());
}

TEST_F(NamesTest, OfFewerMembersASliceIsEmpty) {
  start();
  createWorker();
  std::vector<std::string> ips(1001, "10.0.0.1");
  ips.back() = "10.0.0.2";
  ASSERT_TRUE(publish(ips).ok());
  EXPECT_THAT(told(slices_ + "/job-ipv4-1"), ElementsAre("10.0.0.2"));
  ASSERT_TRUE(publish({"10.0.0.1"}).ok());
  EXPECT_THAT(told(slice_), ElementsAre("10.0.0.1"));
  EXPECT_THAT(told(slices_ + "/job-ipv4-1"), ElementsAre());
}

TEST_F(NamesTest, ComeBackInTurns) {
  start(Duration::zero());
  createWorker();
  ASSERT_TRUE(publish({"10.0.0.1"}).ok());
  const Json before = server_.get(slice_).value()["endpoints"];
  server_.remove(slice_);
  seen();
  EXPECT_EQ(server_.get(slice_).value()["endpoints"], before);
  Json changed = server_.get(slice_).value();
  changed["endpoints"] = Json::array();
  server_.put(slice_, changed);
  seen();
  EXPECT_EQ(server_.get(slice_).value()["endpoints"], before);
}

// Kubernetes goes on to name its tasks: by the selector.
TEST_F(NamesTest, OfAServiceOfAFormerReleaseAreLeftToKubernetes) {
  start(Duration::zero());
  createWorker();
  ASSERT_TRUE(publish({"10.0.0.1"}).ok());
  Json service = server_.get(service_).value();
  service["spec"]["selector"] = {{kJobNameLabel, "job"}};
  server_.put(service_, service);
  server_.remove(slice_);
  seen();
  ASSERT_TRUE(publish({"10.0.0.2"}).ok());
  EXPECT_FALSE(server_.get(slice_).has_value());
  EXPECT_EQ(server_.get(service_).value()["spec"], service["spec"]);
}

// It is somebody else's, who may have a Service of that name elsewhere in mind.
TEST_F(NamesTest, ASliceOfOthersIsNotWritten) {
  start();
  createWorker();
  const Json others = {{"metadata", {{"namespace", "lab"}, {"name", "job-ipv4-0"}, {"uid", "x"}}},
                       {"endpoints", Json::array()}};
  server_.put(slice_, others);
  EXPECT_TRUE(absl::IsUnavailable(publish({"10.0.0.1"})));
  EXPECT_THAT(told(slice_), ElementsAre());
  ASSERT_TRUE(seen().refusal.has_value());
  EXPECT_EQ(seen().refusal->reason, "NameConflict");
}

}  // namespace
}  // namespace trainyard::control
