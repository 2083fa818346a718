// Volume claims by KubeCluster, against an apiserver in memory; what every cluster does with them
// is in tests/conformance/cluster.
#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/kube/kube_cluster.h"
#include "tests/base/process/temp_dir.h"
#include "tests/operator/kube/cluster/memory_cluster_test.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

const JobKey kClaimer{"lab", "job"};
constexpr TaskKey kWorker0{v1::ROLE_WORKER, 0};
const std::string kClaimingJob = "/apis/trainyard.dev/v1alpha1/namespaces/lab/trainingjobs/job";
const std::string kFirstClaim = "/api/v1/namespaces/lab/persistentvolumeclaims/data-job-worker-0";
const std::string kFirstPod = "/api/v1/namespaces/lab/pods/job-worker-0";

Json claimingJob(const Json& retention = Json::object()) {
  Json job = Json::parse(R"({"kind": "TrainingJob",
    "metadata": {"namespace": "lab", "name": "job", "uid": "u1", "generation": 1},
    "spec": {"strategy": "AllReduce", "storage": {"mountPath": "/job"}, "worker": {"replicas": 2,
      "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"storageClassName": "x"}}],
      "template": {"spec": {"containers": [{"name": "task", "image": "a", "command": ["b"]}]}}},
      "network": {"taskPort": 2222, "agentPort": 2230, "metricsPort": 2231}}})");
  job["spec"]["worker"]["persistentVolumeClaimRetentionPolicy"] = retention;
  return job;
}

Json claimAt(const std::string& index, const std::string& owner = "") {
  Json claim;
  claim["metadata"] = {{"namespace", "lab"},
                       {"name", "data-job-worker-" + index},
                       {"uid", "claim-" + index},
                       {"labels",
                        {{"trainyard.dev/job-name", "job"},
                         {"trainyard.dev/role", "worker"},
                         {"trainyard.dev/index", index}}}};
  if (!owner.empty())
    claim["metadata"]["ownerReferences"] = Json::array({{{"uid", owner}, {"controller", true}}});
  return claim;
}

class KubeClaimsTest : public MemoryClusterTest {
 protected:
  void start(const Json& job) {
    server_.put(kClaimingJob, job);
    startWith(labOptions());
  }
  JobObservation observe() {
    JobObservation last;
    EXPECT_TRUE(eventually([&] {
      const auto seen = cluster_->observe(kClaimer);
      if (seen.ok()) last = *seen;
      return seen.ok();
    }));
    return last;
  }
  Status create(const TaskKey& task = kWorker0) {
    return cluster_->createTask(observe().job, task, 1);
  }
  Json ownersOf(const std::string& claim) {
    return server_.get(claim).value()["metadata"].value("ownerReferences", Json::array());
  }
};

TEST_F(KubeClaimsTest, AClaimIsThereBeforeThePod) {
  start(claimingJob());
  ASSERT_TRUE(create().ok());
  const auto calls = server_.calls();
  const auto claim =
      std::find(calls.begin(), calls.end(), "POST /api/v1/namespaces/lab/persistentvolumeclaims");
  const auto pod = std::find(calls.begin(), calls.end(), "POST /api/v1/namespaces/lab/pods");
  ASSERT_NE(pod, calls.end());
  EXPECT_LT(claim, pod);
  EXPECT_EQ(server_.get(kFirstClaim).value()["spec"]["storageClassName"], "x");
  EXPECT_EQ(ownersOf(kFirstClaim), Json::array());
}

TEST_F(KubeClaimsTest, WhatAnEarlierJobOfTheNameHasKeptIsFoundAgain) {
  Json kept = claimAt("0");
  kept["spec"]["storageClassName"] = "old";
  server_.put(kFirstClaim, kept);
  start(claimingJob());
  ASSERT_TRUE(create().ok());
  EXPECT_EQ(server_.get(kFirstClaim).value()["spec"]["storageClassName"], "old");
  EXPECT_TRUE(server_.get(kFirstPod));
}

TEST_F(KubeClaimsTest, WhoseTheyAreFollowsThePolicy) {
  Json kept = claimAt("0");
  kept["metadata"]["ownerReferences"] = Json::array({{{"uid", "backup"}}});
  server_.put(kFirstClaim, kept);
  server_.put(kFirstClaim.substr(0, kFirstClaim.size() - 1) + "1", claimAt("1", "u1"));
  start(claimingJob({{"whenDeleted", "Delete"}}));
  ASSERT_TRUE(create().ok());
  const Json owners = ownersOf(kFirstClaim);
  ASSERT_EQ(owners.size(), 2u) << "whoever else owns it goes on to";
  EXPECT_EQ(owners[0]["uid"], "backup");
  EXPECT_EQ(owners[1]["uid"], "u1");
  EXPECT_EQ(owners[1]["controller"], true);

  server_.put(kClaimingJob, claimingJob());
  ASSERT_TRUE(eventually([&] {
    return observe()
        .job.spec()
        .worker()
        .persistent_volume_claim_retention_policy()
        .when_deleted()
        .empty();
  }));
  ASSERT_TRUE(create({v1::ROLE_WORKER, 1}).ok());
  EXPECT_EQ(ownersOf(kFirstClaim.substr(0, kFirstClaim.size() - 1) + "1"), Json::array());
}

TEST_F(KubeClaimsTest, OfSomebodyElseIsLeftAloneAndTold) {
  // As a StatefulSet "job-worker" with the same template makes it.
  const Json other = {{"metadata", {{"namespace", "lab"}, {"name", "data-job-worker-0"}}},
                      {"spec", {{"storageClassName", "theirs"}}}};
  server_.put(kFirstClaim, other);
  start(claimingJob());
  EXPECT_TRUE(absl::IsUnavailable(create()));
  EXPECT_FALSE(server_.get(kFirstPod));
  EXPECT_EQ(server_.get(kFirstClaim).value()["spec"]["storageClassName"], "theirs");
  const auto refusal = observe().refusal;
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->reason, "NameConflict");
  EXPECT_THAT(refusal->message, HasSubstr("data-job-worker-0 exists and is not of this task"));
  EXPECT_THAT(refusal->message, HasSubstr("trainyard.dev/index=0"));
  // Its owner gives it.
  server_.put(kFirstClaim, claimAt("0"));
  EXPECT_TRUE(create().ok());
  EXPECT_FALSE(observe().refusal);
}

TEST_F(KubeClaimsTest, OneThatGoesIsWaitedFor) {
  for (const bool of_former_job : {true, false}) {
    Json going = claimAt("0", of_former_job ? "u0" : "");
    if (!of_former_job) going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
    server_.put(kFirstClaim, going);
    if (cluster_ == nullptr) start(claimingJob());
    EXPECT_TRUE(absl::IsUnavailable(create()));
    const auto refusal = observe().refusal;
    ASSERT_TRUE(refusal);
    EXPECT_EQ(refusal->message, "PersistentVolumeClaim data-job-worker-0 is being deleted");
    EXPECT_FALSE(server_.get(kFirstPod));
  }
  server_.remove(kFirstClaim);
  EXPECT_TRUE(create().ok());
  EXPECT_TRUE(server_.get(kFirstPod));
}

TEST_F(KubeClaimsTest, WhatTheServerSaysNoToIsTold) {
  server_.refuse([](const HttpRequest& request) -> std::optional<HttpResponse> {
    const bool claim = request.target.find("persistentvolumeclaims") != std::string::npos;
    if (!claim || request.method != "POST") return std::nullopt;
    return MemoryApiserver::failure(422, "Invalid");
  });
  start(claimingJob());
  EXPECT_TRUE(absl::IsInvalidArgument(create()));
  const auto refusal = observe().refusal;
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->reason, "TemplateInvalid");
  EXPECT_THAT(refusal->message, HasSubstr("PersistentVolumeClaim"));
}

TEST_F(KubeClaimsTest, ThoseThatMayGoAreAskedForOnce) {
  server_.put(kFirstClaim, claimAt("0"));
  server_.put(kFirstClaim.substr(0, kFirstClaim.size() - 1) + "7", claimAt("7", "u0"));
  std::atomic<int> lists = 0;
  server_.refuse([&](const HttpRequest& request) -> std::optional<HttpResponse> {
    const bool list = request.method == "GET" &&
                      request.target.find("/persistentvolumeclaims?") != std::string::npos;
    lists += list ? 1 : 0;
    if (list && lists == 1) return MemoryApiserver::failure(403, "Forbidden");
    return std::nullopt;
  });
  start(claimingJob({{"whenScaled", "Delete"}}));
  EXPECT_THAT(observe().volume_claims, testing::IsEmpty()) << "a refusal does not hold up the job";
  EXPECT_THAT(observe().volume_claims, testing::ElementsAre(kWorker0));
  ASSERT_TRUE(create({v1::ROLE_WORKER, 1}).ok());
  EXPECT_THAT(observe().volume_claims, testing::ElementsAre(kWorker0, TaskKey{v1::ROLE_WORKER, 1}));
  EXPECT_EQ(lists, 2);
  ASSERT_TRUE(cluster_->dropVolumeClaims(observe().job, kWorker0).ok());
  EXPECT_FALSE(server_.get(kFirstClaim));
  EXPECT_TRUE(server_.get(kFirstClaim.substr(0, kFirstClaim.size() - 1) + "1"));
  EXPECT_THAT(observe().volume_claims, testing::ElementsAre(TaskKey{v1::ROLE_WORKER, 1}));
}

TEST_F(KubeClaimsTest, ThoseThatStayAreNotAskedFor) {
  server_.put(kFirstClaim, claimAt("0"));
  server_.refuse([](const HttpRequest& request) -> std::optional<HttpResponse> {
    EXPECT_EQ(request.target.find("/persistentvolumeclaims?"), std::string::npos);
    return std::nullopt;
  });
  start(claimingJob());
  EXPECT_THAT(observe().volume_claims, testing::IsEmpty());
}

}  // namespace
}  // namespace trainyard::control
