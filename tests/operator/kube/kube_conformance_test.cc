// The suite of the Cluster interface over KubeCluster and a real apiserver. Nobody runs the pods:
// the harness writes their status, as a kubelet would.
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "fmt/format.h"
#include "operator/job/internal/schema.h"
#include "operator/job/internal/yaml.h"
#include "operator/kube/client.h"
#include "operator/kube/connection.h"
#include "operator/kube/kube_clusters.h"
#include "operator/kube/observe/observe.h"
#include "operator/kube/render/names.h"
#include "tests/conformance/cluster/claim_conformance.h"
#include "tests/conformance/cluster/cluster_conformance.h"
#include "tests/conformance/cluster/queue_conformance.h"
#include "tests/operator/kube/connection_library.h"
#include "tests/operator/kube/test_apiserver.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr KubeResource kDefinitions{"apiextensions.k8s.io", "v1", "customresourcedefinitions",
                                    "CustomResourceDefinition"};

Json definition() {
  internal::YamlDocument document;
  std::vector<JobProblem> problems;
  EXPECT_TRUE(internal::readYaml(internal::crdText(), "crds.yaml", &document, &problems));
  return Json(document.value);
}

// No scheduler knows this name, in case there is one.
Json smallJob(const Json& template_spec) {
  const Json pod = {{"spec", template_spec}};
  return {{"metadata", {{"name", "demo"}}},
          {"spec",
           {{"ps", {{"replicas", 1}, {"template", pod}}},
            {"worker", {{"replicas", 2}, {"template", pod}}},
            {"training",
             {{"model", {{"name", "mlp"}}},
              {"data",
               {{"format", "synthetic"},
                {"shape", Json::array({4, 4, 1})},
                {"classes", 2},
                {"samples", 10}}},
              {"batchSize", 1},
              {"steps", 1},
              {"optimizer", {{"name", "SGD"}, {"learningRate", 0.1}}}}}}}};
}

class KubeHarness : public ClusterHarness {
 public:
  // `template_spec`: of every task's pod. `queue`: of the job; "": none. `worker`: more of its
  // workers.
  explicit KubeHarness(const Json& template_spec = {{"schedulerName", "nobody"}},
                       const std::string& queue = "", const Json& worker = Json::object())
      : kueue_(!queue.empty()) {
    const auto config = loadKubeconfig(kubeconfigPath(), "");
    EXPECT_TRUE(config.ok()) << config.status();
    auto transport = connectTo(*config, systemClock(), byLibraryUnderTest());
    EXPECT_TRUE(transport.ok()) << transport.status();
    transport_ = *std::move(transport);
    client_ = std::make_unique<KubeClient>(*transport_, systemClock(), KubeClientOptions());
    static std::atomic<int> count{0};
    ns_ = fmt::format("kube-cluster-{}-{}", ::getpid(), ++count);
    (void)client_->create(kDefinitions, "", definition());  // another test may have been first
    EXPECT_TRUE(client_->create(kNamespaces, "", {{"metadata", {{"name", ns_}}}}).ok());
    Json job = smallJob(template_spec);
    job["spec"]["worker"].update(worker);
    if (kueue_) job["metadata"]["labels"][std::string(kQueueLabel)] = queue;
    EXPECT_TRUE(waitFor([&] { return client_->create(kTrainingJobs, ns_, job).ok(); }));
    restart(std::nullopt);
    kubelet_ = std::jthread([this](const std::stop_token& stop) { giveAddresses(stop); });
  }
  ~KubeHarness() override {
    kubelet_.request_stop();
    kubelet_.join();
    const auto seen = cluster_->observe(jobKey());
    if (seen.ok()) {
      for (const TaskObservation& task : seen->tasks) {
        (void)cluster_->deleteTask(seen->job, task.key, task.created);
      }
    }
    cluster_.reset();
    (void)client_->remove(kNamespaces, "", ns_, {});
  }

  // Another operator process takes over.
  void restart(const std::optional<PolicyOptions>& policy) {
    KubeClusterOptions options;
    options.render = {.agent_image = "agent:1", .runtime_image = "runtime:1", .policy = policy};
    options.root_secrets = {std::string(32, 'r')};
    options.fresh_wait = seconds(30);
    options.kueue = kueue_;
    cluster_ = std::make_unique<KubeClusters>(*client_, systemClock(), options,
                                              std::vector<std::string>{ns_, "default"});
    EXPECT_TRUE(cluster_->watch([](const JobKey&) {}).ok());
    EXPECT_TRUE(cluster_->listJobs().ok());
  }
  KubeClient& client() { return *client_; }

  Cluster& cluster() override { return *cluster_; }
  JobKey jobKey() override { return {ns_, "demo"}; }
  void makeTaskReady(const TaskKey& key) override {
    setState(key, "Running", {{"running", Json::object()}}, true);
  }
  void killTask(const TaskKey& key) override {
    setState(key, "Failed", {{"terminated", {{"exitCode", 137}, {"reason", "Error"}}}}, false);
  }
  void finishTask(const TaskKey& key, int code) override {
    setState(key, code == 0 ? "Succeeded" : "Failed", {{"terminated", {{"exitCode", code}}}},
             false);
  }
  bool waitFor(const std::function<bool()>& predicate) override {
    const TimePoint end = systemClock().now() + seconds(60);
    std::mutex mutex;
    std::condition_variable never;
    std::unique_lock lock(mutex);
    while (!predicate()) {
      if (systemClock().now() > end) return false;
      never.wait_for(lock, milliseconds(20), [] { return false; });
    }
    return true;
  }

 private:
  Status setStatus(const std::string& pod, const Json& status) {
    return client_->patchMerge(kPods, ns_, pod, {{"status", status}}, "status").status();
  }
  void setState(const TaskKey& key, const std::string& phase, const Json& state, bool ready) {
    const Json container = {{"name", "task"},       {"ready", ready}, {"state", state},
                            {"image", "runtime:1"}, {"imageID", ""},  {"restartCount", 0}};
    const Status status =
        setStatus("demo-" + toString(key), {{"phase", phase},
                                            {"podIP", "10.0.0.1"},
                                            {"podIPs", Json::array({{{"ip", "10.0.0.1"}}})},
                                            {"containerStatuses", Json::array({container})}});
    EXPECT_TRUE(status.ok()) << status;
  }
  void giveAddresses(const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any wake;
    std::unique_lock lock(mutex);
    while (!stop.stop_requested()) {
      const auto pods = client_->list(kPods, {ns_, "", ""});
      for (const Json& pod : pods.ok() ? pods->items : std::vector<Json>()) {
        if (pod["status"].contains("podIP")) continue;
        (void)setStatus(objectKey(pod).name,
                        {{"podIP", "10.0.0.1"}, {"podIPs", Json::array({{{"ip", "10.0.0.1"}}})}});
      }
      wake.wait_for(lock, stop, milliseconds(50), [] { return false; });
    }
  }

  const bool kueue_;
  std::string ns_;
  std::unique_ptr<HttpTransport> transport_;
  std::unique_ptr<KubeClient> client_;
  std::unique_ptr<KubeClusters> cluster_;
  std::jthread kubelet_;
};

std::vector<ConformanceParam> harnesses() {
  if (kubeconfigPath().empty()) return {};
  return {ConformanceParam{"apiserver", [] { return std::make_unique<KubeHarness>(); }}};
}

// What the apiserver has to know of a Workload; that the fields are Kueue's is for the tests with
// the real one (tests/cluster/e2e/queue_test.py).
Json definitionOfWorkloads() {
  return Json::parse(R"({"metadata": {"name": "workloads.kueue.x-k8s.io"}, "spec": {
      "group": "kueue.x-k8s.io", "scope": "Namespaced",
      "names": {"kind": "Workload", "plural": "workloads", "singular": "workload"},
      "versions": [{"name": "v1beta1", "served": true, "storage": true,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object",
          "x-kubernetes-preserve-unknown-fields": true}}}]}})");
}

// The test is Kueue.
class KubeQueueHarness : public QueueHarness {
 public:
  KubeQueueHarness() : kube_(Json{{"schedulerName", "nobody"}}, "team-a") {
    (void)kube_.client().create(kDefinitions, "", definitionOfWorkloads());
    EXPECT_TRUE(waitFor([&] {
      return kube_.client().list(kWorkloads, {jobKey().ns, "", ""}).ok();
    }));
  }
  Cluster& cluster() override { return kube_.cluster(); }
  JobKey jobKey() override { return kube_.jobKey(); }
  void grant(int workers) override {
    const Json ps = {{"name", "ps"}, {"count", 1}};
    const Json worker = {{"name", "worker"}, {"count", workers}};
    write({{"conditions",
            Json::array({condition("QuotaReserved", "True", ""), condition("Admitted", "True", ""),
                         condition("Evicted", "False", "")})},
           {"admission",
            {{"clusterQueue", "all"}, {"podSetAssignments", Json::array({ps, worker})}}}});
  }
  void withdraw(const std::string& message) override {
    Json conditions = workload()["status"]["conditions"];
    std::erase_if(conditions.get_ref<Json::array_t&>(),
                  [](const Json& one) { return one["type"] == "Evicted"; });
    conditions.push_back(condition("Evicted", "True", message));
    write({{"conditions", conditions}});
  }
  bool waitFor(const std::function<bool()>& predicate) override { return kube_.waitFor(predicate); }

 private:
  static Json condition(const std::string& type, const std::string& status,
                        const std::string& message) {
    return {{"type", type},
            {"status", status},
            {"reason", type == "Evicted" ? "Preempted" : type},
            {"message", message},
            {"lastTransitionTime", "2026-01-31T13:05:09Z"}};
  }
  Json workload() {
    const auto found = kube_.client().list(kWorkloads, {jobKey().ns, "", ""});
    EXPECT_TRUE(found.ok() && found->items.size() == 1) << found.status();
    return found.ok() && !found->items.empty() ? found->items[0] : Json();
  }
  void write(const Json& status) {
    const std::string name = objectKey(workload()).name;
    const Status written =
        kube_.client()
            .patchMerge(kWorkloads, jobKey().ns, name, {{"status", status}}, "status")
            .status();
    EXPECT_TRUE(written.ok()) << written;
  }

  KubeHarness kube_;
};

class KubeClaimHarness : public ClaimHarness {
 public:
  KubeClaimHarness() : kube_(Json{{"schedulerName", "nobody"}}, "", claimingWorker()) {}
  Cluster& cluster() override { return kube_.cluster(); }
  JobKey jobKey() override { return kube_.jobKey(); }
  // Nobody here takes away the finalizer of claims that are deleted.
  std::vector<std::string> claims() override {
    const auto found = kube_.client().list(kPersistentVolumeClaims, {jobKey().ns, "", ""});
    EXPECT_TRUE(found.ok()) << found.status();
    std::vector<std::string> names;
    for (const Json& claim : found.ok() ? found->items : std::vector<Json>()) {
      if (!isTerminating(claim)) names.push_back(objectKey(claim).name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  bool waitFor(const std::function<bool()>& predicate) override { return kube_.waitFor(predicate); }

 private:
  static Json claimingWorker() {
    const Json spec = {{"accessModes", {"ReadWriteOnce"}},
                       {"resources", {{"requests", {{"storage", "1Gi"}}}}}};
    return {
        {"volumeClaimTemplates", Json::array({{{"metadata", {{"name", "data"}}}, {"spec", spec}}})},
        {"persistentVolumeClaimRetentionPolicy", {{"whenScaled", "Delete"}}}};
  }

  KubeHarness kube_;
};

std::vector<ClaimParam> claimHarnesses() {
  if (kubeconfigPath().empty()) return {};
  return {ClaimParam{"apiserver", [] { return std::make_unique<KubeClaimHarness>(); }}};
}

std::vector<QueueParam> queueHarnesses() {
  if (kubeconfigPath().empty()) return {};
  return {QueueParam{"apiserver", [] { return std::make_unique<KubeQueueHarness>(); }}};
}

TEST(KubeConformance, HasACluster) {
  if (kubeconfigPath().empty()) missApiserver();
}

PolicyOptions policyFor(const std::string& metrics_from) {
  const auto options = parsePolicyOptions(
      R"({"agentFrom": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"a": "b"}}}],
          "metricsFrom": )" +
      metrics_from + "}");
  EXPECT_TRUE(options.ok()) << options.status();
  return options.ok() ? *options : PolicyOptions();
}

class KubePolicy : public testing::Test {
 protected:
  void SetUp() override {
    if (kubeconfigPath().empty()) return missApiserver();
    harness_ = std::make_unique<KubeHarness>();
  }
  Status createTask(const TaskKey& task) {
    const auto seen = harness_->cluster().observe(harness_->jobKey());
    TY_RETURN_IF_ERROR(seen.status());
    return harness_->cluster().createTask(seen->job, task, 1);
  }
  StatusOr<Json> policy() {
    return harness_->client().get(kNetworkPolicies, harness_->jobKey().ns, "demo");
  }

  std::unique_ptr<KubeHarness> harness_;
};

TEST_F(KubePolicy, IsMadeBeforeTheTasksAndFollowsTheOptions) {
  if (harness_ == nullptr) return;
  ASSERT_TRUE(createTask({v1::ROLE_PS, 0}).ok());
  EXPECT_TRUE(absl::IsNotFound(policy().status())) << "off by default";
  harness_->restart(policyFor("[]"));
  ASSERT_TRUE(createTask({v1::ROLE_WORKER, 0}).ok());
  StatusOr<Json> made = policy();
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(controllerUid(*made),
            harness_->cluster().observe(harness_->jobKey())->job.metadata().uid());
  EXPECT_EQ((*made)["spec"]["ingress"].size(), 2u) << made->dump();
  EXPECT_EQ((*made)["spec"]["policyTypes"], Json::array({"Ingress"}));
  harness_->restart(policyFor(R"([{"ipBlock": {"cidr": "10.1.0.0/16"}}])"));
  ASSERT_TRUE(createTask({v1::ROLE_WORKER, 1}).ok());
  made = policy();
  ASSERT_TRUE(made.ok()) << made.status();
  const Json metrics = (*made)["spec"]["ingress"].at(2);
  EXPECT_EQ(metrics["from"].at(0)["ipBlock"]["cidr"], "10.1.0.0/16");
  EXPECT_EQ(metrics["ports"].at(0)["port"], 2231);
}

TEST_F(KubePolicy, OfSomebodyElseIsLeftAlone) {
  if (harness_ == nullptr) return;
  const Json other = {{"metadata", {{"name", "demo"}}},
                      {"spec", {{"podSelector", {{"matchLabels", {{"x", "y"}}}}}}}};
  ASSERT_TRUE(harness_->client().create(kNetworkPolicies, harness_->jobKey().ns, other).ok());
  harness_->restart(policyFor("[]"));
  EXPECT_TRUE(absl::IsUnavailable(createTask({v1::ROLE_PS, 0})));
  EXPECT_EQ((*policy())["spec"]["podSelector"]["matchLabels"]["x"], "y");
  const auto seen = harness_->cluster().observe(harness_->jobKey());
  ASSERT_TRUE(seen.ok() && seen->refusal);
  EXPECT_EQ(seen->refusal->reason, "NameConflict");
}

// The pod is bound to a node without a kubelet.
TEST(KubeSilentNode, APodStaysUntilItIsForgotten) {
  if (kubeconfigPath().empty()) return missApiserver();
  KubeHarness harness(Json{{"nodeName", "silent"}});
  Cluster& cluster = harness.cluster();
  const TaskKey ps{v1::ROLE_PS, 0};
  const auto seen = [&] {
    const auto job = cluster.observe(harness.jobKey());
    return job.ok() && !job->tasks.empty() ? std::optional(job->tasks[0]) : std::nullopt;
  };
  const v1::TrainingJob job = cluster.observe(harness.jobKey())->job;
  const Status made = cluster.createTask(job, ps, 1);
  ASSERT_TRUE(made.ok()) << made;
  ASSERT_TRUE(harness.waitFor([&] { return seen().has_value(); }));
  ASSERT_TRUE(cluster.deleteTask(job, ps, 1).ok());
  ASSERT_TRUE(harness.waitFor([&] { return seen() && seen()->terminating; }));
  EXPECT_TRUE(absl::IsAlreadyExists(cluster.createTask(job, ps, 2)));
  EXPECT_GT(seen()->end_due, 0);
  EXPECT_EQ(seen()->waiting->message, "on node silent");
  ASSERT_TRUE(cluster.forgetTask(job, ps, 1).ok());
  EXPECT_TRUE(harness.waitFor([&] { return !seen(); }));
  EXPECT_TRUE(cluster.createTask(job, ps, 2).ok());
  ASSERT_TRUE(harness.waitFor([&] { return seen() && seen()->created == 2; }));
  EXPECT_TRUE(absl::IsNotFound(cluster.forgetTask(job, ps, 1)));
  EXPECT_TRUE(cluster.forgetTask(job, ps, 2).ok());
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ClusterConformance);
INSTANTIATE_TEST_SUITE_P(Kube, ClusterConformance, testing::ValuesIn(harnesses()), conformanceName);
INSTANTIATE_TEST_SUITE_P(Kube, ClaimConformance, testing::ValuesIn(claimHarnesses()),
                         claimParamName);
INSTANTIATE_TEST_SUITE_P(Kube, QueueConformance, testing::ValuesIn(queueHarnesses()), queueName);

}  // namespace
}  // namespace trainyard::control
