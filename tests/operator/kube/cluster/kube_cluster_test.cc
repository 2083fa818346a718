// KubeCluster against an apiserver in memory that fails and falls back as it is told; what every
// cluster does is in tests/conformance/cluster.
#include "operator/kube/kube_cluster.h"

#include <atomic>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/kube/render/names.h"
#include "tests/base/process/temp_dir.h"
#include "tests/operator/kube/cluster/memory_apiserver.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::json;

constexpr char kPodsOfLab[] = "/api/v1/namespaces/lab/pods/";
constexpr char kJobsOfLab[] = "/apis/trainyard.dev/v1alpha1/namespaces/lab/trainingjobs/";
const JobKey kJob{"lab", "job"};

Json pod(const std::string& name, const std::string& owner) {
  Json pod;
  pod["metadata"] = {{"namespace", "lab"},
                     {"name", name},
                     {"uid", name},
                     {"labels", {{kJobNameLabel, "job"}}},
                     {"finalizers", Json::array({kResultFinalizer})},
                     {"ownerReferences", Json::array({{{"uid", owner}, {"controller", true}}})}};
  return pod;
}

Json jobObject() {
  return Json::parse(R"({"kind": "TrainingJob",
    "metadata": {"namespace": "lab", "name": "job", "uid": "u1", "generation": 1},
    "spec": {"strategy": "AllReduce", "storage": {"mountPath": "/job"}, "worker": {"replicas": 1,
      "template": {"spec": {"containers": [{"name": "task", "image": "a", "command": ["b"]}]}}},
      "network": {"taskPort": 2222, "agentPort": 2230, "metricsPort": 2231}}})");
}

class KubeClusterTest : public testing::Test {
 protected:
  void start() {
    KubeClusterOptions options;
    options.ns = "lab";
    options.render = {.agent_image = "agent:1", .runtime_image = "runtime:1"};
    options.root_secrets = {std::string(32, 'r')};
    options.reflector.backoff = std::chrono::milliseconds(5);
    options.reflector.max_backoff = std::chrono::milliseconds(20);
    cluster_ = std::make_unique<KubeCluster>(client_, systemClock(), options);
    ASSERT_TRUE(cluster_->watch([](const JobKey&) {}).ok());
    ASSERT_TRUE(cluster_->listJobs().ok());
  }

  MemoryApiserver server_;
  KubeClient client_{server_, systemClock()};
  std::unique_ptr<KubeCluster> cluster_;
};

TEST_F(KubeClusterTest, OrphansThatCannotBeFreedAreTriedAgain) {
  for (const char* name : {"job-worker-0", "job-worker-1", "job-worker-2"}) {
    server_.put(kPodsOfLab + std::string(name), pod(name, "gone"));
  }
  std::atomic<bool> refuses = true;
  server_.refuse([&](const HttpRequest& request) -> std::optional<HttpResponse> {
    const bool first = request.target.ends_with("job-worker-0");
    if (!refuses || request.method != "PATCH" || !first) return std::nullopt;
    return MemoryApiserver::failure(500, "InternalError");
  });
  start();
  const Status status = cluster_->observe(kJob).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(failureClass(status), FailureClass::kRetry);
  const auto finalizers = [&](const std::string& name) {
    return server_.get(kPodsOfLab + name).value()["metadata"]["finalizers"];
  };
  EXPECT_EQ(finalizers("job-worker-1"), Json::array()) << "one does not hold back the others";
  EXPECT_EQ(finalizers("job-worker-2"), Json::array());
  refuses = false;
  EXPECT_TRUE(eventually([&] { return absl::IsNotFound(cluster_->observe(kJob).status()); }));
  EXPECT_EQ(finalizers("job-worker-0"), Json::array());
}

TEST_F(KubeClusterTest, OrphansDoNotHoldUpAJobOfTheirName) {
  server_.put(kJobsOfLab + std::string("job"), jobObject());
  server_.put(kPodsOfLab + std::string("job-worker-7"), pod("job-worker-7", "gone"));
  server_.refuse([](const HttpRequest& request) -> std::optional<HttpResponse> {
    if (request.method != "PATCH") return std::nullopt;
    return MemoryApiserver::failure(403, "Forbidden");
  });
  start();
  const auto seen = cluster_->observe(kJob);
  ASSERT_TRUE(seen.ok()) << seen.status();
  EXPECT_TRUE(seen->tasks.empty());
}

// A server that was restored from a backup counts on from a lower version than what was written
// before; what it lists from then on is all there is.
TEST_F(KubeClusterTest, AfterARestoreOfTheServerJobsGoOn) {
  server_.put(kJobsOfLab + std::string("job"), jobObject());
  server_.setVersion(1000);
  start();
  const auto before = cluster_->observe(kJob);
  ASSERT_TRUE(before.ok()) << before.status();
  v1::JobStatus status;
  status.set_state("Created");
  ASSERT_TRUE(cluster_->writeStatus(before->job, status).ok());
  server_.setVersion(100);
  EXPECT_TRUE(eventually([&] { return cluster_->observe(kJob).ok(); }));
  const auto after = cluster_->observe(kJob);
  ASSERT_TRUE(after.ok()) << after.status();
  status.set_state("Running");
  ASSERT_TRUE(cluster_->writeStatus(after->job, status).ok());
  EXPECT_TRUE(eventually([&] {
    const auto seen = cluster_->observe(kJob);
    return seen.ok() && seen->job.status().state() == "Running";
  }));
}

// The reason is not read out of the message, in which names of the user's stand.
TEST_F(KubeClusterTest, WhatKeepsAJobFromBeginningHasItsReason) {
  const auto reasonWith = [this](const std::string& name, const Json& container) {
    Json object = jobObject();
    object["metadata"]["name"] = name;
    object["metadata"]["uid"] = name;
    object["spec"]["worker"]["template"]["spec"]["containers"][0] = container;
    server_.put(kJobsOfLab + name, object);
    EXPECT_TRUE(eventually([&] { return cluster_->observe({"lab", name}).ok(); }));
    const auto seen = cluster_->observe({"lab", name});
    return seen.ok() && seen->obstacle ? seen->obstacle->reason : "";
  };
  start();
  EXPECT_EQ(reasonWith("well", {{"name", "task"}, {"command", {"b"}}}), "");
  EXPECT_EQ(reasonWith("none", {{"name", "task"}}), "CommandRequired");
  const Json odd = {{"name", "TRAINYARD_].command: missing"}, {"value", "1"}};
  EXPECT_EQ(reasonWith("odd", {{"name", "task"}, {"command", {"b"}}, {"env", Json::array({odd})}}),
            "TemplateInvalid");
}

}  // namespace
}  // namespace trainyard::control
