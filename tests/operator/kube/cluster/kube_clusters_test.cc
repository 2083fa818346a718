// Several namespaces at once; what each of them is, kube_cluster_test.cc and the conformance suite
// tell.
#include "operator/kube/kube_clusters.h"

#include <mutex>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/process/temp_dir.h"
#include "tests/operator/kube/cluster/memory_apiserver.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::json;
using testing::UnorderedElementsAre;

std::string pathOf(const std::string& ns) {
  return "/apis/trainyard.dev/v1alpha1/namespaces/" + ns + "/trainingjobs/job";
}

Json jobOf(const std::string& ns) {
  Json job = Json::parse(R"({"kind": "TrainingJob", "metadata": {"name": "job", "generation": 1},
    "spec": {"strategy": "AllReduce", "storage": {"mountPath": "/job"}, "worker": {"replicas": 1,
      "template": {"spec": {"containers": [{"name": "task", "image": "a", "command": ["b"]}]}}},
      "network": {"taskPort": 2222, "agentPort": 2230, "metricsPort": 2231}}})");
  job["metadata"]["namespace"] = ns;
  job["metadata"]["uid"] = "uid-of-" + ns;
  return job;
}

class KubeClustersTest : public testing::Test {
 protected:
  KubeClustersTest() {
    for (const char* ns : {"lab", "den", "office"}) server_.put(pathOf(ns), jobOf(ns));
  }
  void start(const std::vector<std::string>& namespaces) {
    KubeClusterOptions options;
    options.render = {.agent_image = "agent:1", .runtime_image = "runtime:1"};
    options.root_secrets = {std::string(32, 'r')};
    options.reflector.stream = false;  // which the server in memory does not offer
    clusters_ = std::make_unique<KubeClusters>(client_, systemClock(), options, namespaces);
    ASSERT_TRUE(clusters_
                    ->watch([this](const JobKey& key) {
                      const std::lock_guard lock(mutex_);
                      changed_.insert(key);
                    })
                    .ok());
  }
  bool changed(const JobKey& key) {
    const std::lock_guard lock(mutex_);
    return changed_.contains(key);
  }

  MemoryApiserver server_;
  KubeClient client_{server_, systemClock()};
  std::mutex mutex_;
  std::set<JobKey> changed_;
  std::unique_ptr<KubeClusters> clusters_;
};

TEST_F(KubeClustersTest, HaveTheJobsOfTheirNamespacesAndNoOthers) {
  start({"lab", "den", "lab"});
  const auto keys = clusters_->listJobs();
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_THAT(*keys, UnorderedElementsAre(JobKey{"lab", "job"}, JobKey{"den", "job"}));
  EXPECT_TRUE(clusters_->hasSynced());
  EXPECT_EQ(clusters_->cachedJobs().size(), 2u);
  EXPECT_TRUE(absl::IsNotFound(clusters_->observe({"office", "job"}).status()));
  EXPECT_TRUE(absl::IsNotFound(clusters_->agents({"office", "job"}).status()));
}

TEST_F(KubeClustersTest, WriteToTheJobsOwnNamespace) {
  start({"lab", "den"});
  ASSERT_TRUE(clusters_->listJobs().ok());
  for (const std::string ns : {"lab", "den"}) {
    const auto seen = clusters_->observe({ns, "job"});
    ASSERT_TRUE(seen.ok()) << seen.status();
    EXPECT_EQ(seen->job.metadata().uid(), "uid-of-" + ns);
    ASSERT_TRUE(clusters_->createTask(seen->job, {v1::ROLE_WORKER, 0}, 1).ok());
    EXPECT_TRUE(server_.get("/api/v1/namespaces/" + ns + "/pods/job-worker-0"));
  }
  EXPECT_TRUE(eventually([&] { return clusters_->cachedPods() == 2; }));
  EXPECT_NE(clusters_->token({"lab", "job"}).value(), clusters_->token({"den", "job"}).value());
}

TEST_F(KubeClustersTest, TellWhatChangesInEachOfThem) {
  server_.remove(pathOf("lab"));
  start({"lab", "den"});
  ASSERT_TRUE(clusters_->listJobs().ok());
  EXPECT_FALSE(changed({"lab", "job"}));
  server_.put(pathOf("lab"), jobOf("lab"));
  EXPECT_TRUE(eventually([&] { return changed({"lab", "job"}); }));
  EXPECT_TRUE(eventually([&] { return changed({"den", "job"}); }));
  EXPECT_FALSE(changed({"office", "job"}));
}

TEST_F(KubeClustersTest, CountAWatchOfEachUnderOneName) {
  start({"lab", "den"});
  ASSERT_TRUE(clusters_->listJobs().ok());
  const auto counts = clusters_->reflectorCounts();
  ASSERT_EQ(counts.size(), 3u);
  for (const auto& [name, count] : counts) EXPECT_GE(count.lists, 2u) << name;
}

}  // namespace
}  // namespace trainyard::control
