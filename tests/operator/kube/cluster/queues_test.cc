// Jobs that wait in a queue of Kueue's, against an apiserver in memory.
#include <atomic>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/kube/kube_cluster.h"
#include "tests/base/process/temp_dir.h"
#include "tests/operator/kube/cluster/memory_cluster_test.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::json;

const JobKey kQueued{"lab", "job"};
constexpr char kQueuedPath[] = "/apis/trainyard.dev/v1alpha1/namespaces/lab/trainingjobs/job";
constexpr char kWorkload[] =
    "/apis/kueue.x-k8s.io/v1beta1/namespaces/lab/workloads/trainingjob-job-u1";
constexpr char kPod[] = "/api/v1/namespaces/lab/pods/job-worker-0";

Json jobInQueue() {
  return Json::parse(R"({"kind": "TrainingJob",
    "metadata": {"namespace": "lab", "name": "job", "uid": "u1", "generation": 1,
                 "labels": {"kueue.x-k8s.io/queue-name": "team-a"}},
    "spec": {"strategy": "AllReduce", "storage": {"mountPath": "/job"}, "worker": {"replicas": 1,
      "template": {"spec": {"containers": [{"name": "task", "image": "a", "command": ["b"]}]}}},
      "network": {"taskPort": 2222, "agentPort": 2230, "metricsPort": 2231}}})");
}

class QueuesTest : public MemoryClusterTest {
 protected:
  void start(bool kueue = true) {
    server_.put(kQueuedPath, jobInQueue());
    KubeClusterOptions options = labOptions();
    options.kueue = kueue;
    startWith(options);
  }

  // Calls of such a path have that answer.
  void failAll(const std::string& part, int code, const std::string& reason) {
    server_.refuse([=](const HttpRequest& request) -> std::optional<HttpResponse> {
      if (request.target.find(part) == std::string::npos) return std::nullopt;
      return MemoryApiserver::failure(code, reason);
    });
  }

  JobObservation seen() {
    StatusOr<JobObservation> observed = absl::UnavailableError("not yet");
    EXPECT_TRUE(eventually([&] { return (observed = cluster_->observe(kQueued)).ok(); }));
    return observed.value_or(JobObservation());
  }

  QuotaClaim claim() {
    QuotaClaim claim;
    claim.workers = claim.least_workers = 1;
    return claim;
  }

  void admit() {
    Json workload = server_.get(kWorkload).value();
    workload["status"] = Json::parse(R"({
      "conditions": [{"type": "QuotaReserved", "status": "True"},
                     {"type": "Admitted", "status": "True"}],
      "admission": {"clusterQueue": "all", "podSetAssignments": [
        {"name": "worker", "flavors": {"cpu": "training"}, "count": 1}]}})");
    server_.put(kWorkload, workload);
  }
};

TEST_F(QueuesTest, WithoutQueuesSuchAJobIsRefused) {
  start(/*kueue=*/false);
  const JobObservation job = seen();
  ASSERT_TRUE(job.obstacle);
  EXPECT_EQ(job.obstacle->reason, "NotSupported");
  EXPECT_THAT(job.obstacle->message, testing::HasSubstr("chart value kueue.enabled"));
  EXPECT_FALSE(job.quota.has_value());
}

TEST_F(QueuesTest, AJobOfNoQueueHasNoWorkload) {
  start();
  Json job = jobInQueue();
  job["metadata"].erase("labels");
  server_.put(kQueuedPath, job);
  EXPECT_TRUE(eventually([&] { return !seen().quota.has_value(); }));
}

TEST_F(QueuesTest, ClaimsAndRunsWhereItWasGrantedQuota) {
  server_.put("/apis/kueue.x-k8s.io/v1beta1/resourceflavors/training",
              Json::parse(R"({"spec": {"nodeLabels": {"pool": "training"}}})"));
  start();
  EXPECT_FALSE(seen().quota->claim.has_value());
  ASSERT_TRUE(cluster_->claimQuota(seen().job, claim()).ok());
  EXPECT_EQ(seen().quota->claim, claim()) << "our own write is seen";
  EXPECT_FALSE(seen().quota->granted);
  admit();
  ASSERT_TRUE(eventually([&] { return seen().quota->granted; }));
  ASSERT_TRUE(cluster_->createTask(seen().job, {v1::ROLE_WORKER, 0}, 1).ok());
  EXPECT_EQ(server_.get(kPod).value()["spec"]["nodeSelector"]["pool"], "training");
  ASSERT_TRUE(cluster_->dropClaim(seen().job).ok());
  EXPECT_FALSE(server_.get(kWorkload).has_value());
  EXPECT_FALSE(seen().quota->claim.has_value());
}

TEST_F(QueuesTest, WhoseLabelIsTakenAwayHoldsNothing) {
  start();
  ASSERT_TRUE(cluster_->claimQuota(seen().job, claim()).ok());
  EXPECT_TRUE(seen().quota->claim.has_value());
  Json job = jobInQueue();
  job["metadata"].erase("labels");
  server_.put(kQueuedPath, job);
  EXPECT_TRUE(eventually([&] { return !seen().quota && !server_.get(kWorkload); }));
}

TEST_F(QueuesTest, AFlavorThatIsGoneHoldsUpThePod) {
  start();
  ASSERT_TRUE(cluster_->claimQuota(seen().job, claim()).ok());
  admit();
  ASSERT_TRUE(eventually([&] { return seen().quota->granted; }));
  const Status status = cluster_->createTask(seen().job, {v1::ROLE_WORKER, 0}, 1);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("ResourceFlavor training"));
  EXPECT_FALSE(server_.get(kPod).has_value());
}

TEST_F(QueuesTest, ThatKueueIsMissingIsTold) {
  failAll("/workloads", 404, "NotFound");
  start();
  EXPECT_FALSE(seen().quota->claim.has_value());
  EXPECT_TRUE(absl::IsUnavailable(cluster_->claimQuota(seen().job, claim())));
  const auto refusal = seen().refusal;
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->reason, "KueueMissing");
  EXPECT_EQ(refusal->message, "the cluster has no workloads.kueue.x-k8s.io: is Kueue installed?");
}

// An operator that starts must not take what it has not seen yet for a quota that is gone.
TEST_F(QueuesTest, BeforeTheCacheIsCompleteTheApiserverIsAsked) {
  start();
  ASSERT_TRUE(cluster_->claimQuota(seen().job, claim()).ok());
  admit();
  cluster_.reset();
  server_.refuse([](const HttpRequest& request) -> std::optional<HttpResponse> {
    const bool list = request.target.find("/workloads?") != std::string::npos;
    return list ? std::optional(MemoryApiserver::failure(500, "InternalError")) : std::nullopt;
  });
  start();
  EXPECT_TRUE(seen().quota->granted);
  failAll("/workloads", 500, "InternalError");
  EXPECT_FALSE(cluster_->observe(kQueued).ok()) << "who does not know does nothing";
}

TEST_F(QueuesTest, APriorityClassThatIsNotThereIsTold) {
  start();
  Json job = jobInQueue();
  job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "urgent";
  server_.put(kQueuedPath, job);
  ASSERT_TRUE(eventually([&] { return seen().job.metadata().labels().size() == 2; }));
  EXPECT_FALSE(cluster_->claimQuota(seen().job, claim()).ok());
  const auto refusal = seen().refusal;
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->reason, "WorkloadRefused");
  EXPECT_EQ(refusal->message, "there is no WorkloadPriorityClass urgent");
}

}  // namespace
}  // namespace trainyard::control
