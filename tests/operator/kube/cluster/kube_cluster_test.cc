// KubeCluster against an apiserver in memory that fails and falls back as it is told; what every
// cluster does is in tests/conformance/cluster.
#include "operator/kube/kube_cluster.h"

#include <atomic>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/kube/render/names.h"
#include "tests/base/process/temp_dir.h"
#include "tests/operator/kube/cluster/memory_cluster_test.h"

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

class KubeClusterTest : public MemoryClusterTest {
 protected:
  void start() {
    KubeClusterOptions options = labOptions();
    options.render.policy = policy_;
    options.render.gang = gang_;
    options.shared_every = shared_every_;
    startWith(options);
  }

  Duration shared_every_ = std::chrono::hours(1);
  std::optional<PolicyOptions> policy_;
  std::optional<GangOptions> gang_;
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

// They are asked for in each round, and read anew only when an object of the job has changed.
TEST_F(KubeClusterTest, AJobsKeysAreOfTheRootAndTheUidThatItHasNow) {
  const std::string newer(32, 'n'), older(32, 'o');
  KubeClusterOptions options = labOptions();
  options.root_secrets = {newer, older};
  server_.put(kJobsOfLab + std::string("job"), jobObject());
  startWith(options);
  const auto becomes = [&](const std::string& root, const std::string& uid) {
    const std::string token = deriveJobKeys(root, uid).token;
    return eventually([&] {
      const auto now = cluster_->token(kJob);
      return now.ok() && *now == token;
    });
  };
  EXPECT_TRUE(becomes(newer, "u1"));
  server_.put("/api/v1/namespaces/lab/configmaps/job-membership",
              {{"kind", "ConfigMap"},
               {"metadata",
                {{"namespace", "lab"},
                 {"name", "job-membership"},
                 {"uid", "m1"},
                 {"labels", {{kJobNameLabel, "job"}}},
                 {"annotations", {{kRootAnnotation, rootId(older)}}},
                 {"ownerReferences", Json::array({{{"uid", "u1"}, {"controller", true}}})}}}});
  EXPECT_TRUE(becomes(older, "u1")) << "it was taken up with that one";
  server_.remove(kJobsOfLab + std::string("job"));
  EXPECT_TRUE(eventually([&] { return absl::IsNotFound(cluster_->token(kJob).status()); }));
  Json another = jobObject();
  another["metadata"]["uid"] = "u2";
  server_.put(kJobsOfLab + std::string("job"), another);
  EXPECT_TRUE(becomes(newer, "u2")) << "the membership is another job's";
}

Json gangObject(int workers) {
  Json job = jobObject();
  job["spec"]["runPolicy"]["schedulingPolicy"] = Json::object();
  job["spec"]["worker"]["replicas"] = workers;
  return job;
}

TEST_F(KubeClusterTest, AJobWhoseTasksStartTogetherNeedsASchedulerForThat) {
  server_.put(kJobsOfLab + std::string("job"), gangObject(2));
  start();
  const auto seen = cluster_->observe(kJob);
  ASSERT_TRUE(seen.ok() && seen->obstacle) << seen.status();
  EXPECT_EQ(seen->obstacle->reason, "NotSupported");
  EXPECT_THAT(seen->obstacle->message, testing::HasSubstr("spec.runPolicy.schedulingPolicy: "));
}

TEST_F(KubeClusterTest, ThePodGroupIsMadeBeforeThePodsAndIsAsLargeAsTheJob) {
  gang_ = {GangScheduler::kCoscheduling, "gangs"};
  server_.put(kJobsOfLab + std::string("job"), gangObject(2));
  start();
  const std::string group = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/lab/podgroups/job";
  ASSERT_TRUE(cluster_->createTask(cluster_->observe(kJob)->job, {v1::ROLE_WORKER, 0}, 1).ok());
  ASSERT_TRUE(server_.get(group));
  EXPECT_EQ((*server_.get(group))["spec"]["minMember"], 2);
  server_.put(kJobsOfLab + std::string("job"), gangObject(3));
  ASSERT_TRUE(eventually([&] {
    const auto seen = cluster_->observe(kJob);
    return seen.ok() && seen->job.spec().worker().replicas() == 3;
  }));
  ASSERT_TRUE(cluster_->createTask(cluster_->observe(kJob)->job, {v1::ROLE_WORKER, 2}, 1).ok());
  EXPECT_EQ((*server_.get(group))["spec"]["minMember"], 3);
  // No pod is made when it shrinks, and one that finds no room may be made smaller for that: once
  // those that are not wanted are gone, or they would be placed, too.
  server_.put(kJobsOfLab + std::string("job"), gangObject(1));
  const auto workers = [&] { return cluster_->observe(kJob)->job.spec().worker().replicas(); };
  ASSERT_TRUE(eventually([&] { return workers() == 1; }));
  EXPECT_EQ((*server_.get(group))["spec"]["minMember"], 3);
  ASSERT_TRUE(cluster_->deleteTask(cluster_->observe(kJob)->job, {v1::ROLE_WORKER, 2}, 1).ok());
  EXPECT_TRUE(eventually(
      [&] { return workers() == 1 && (*server_.get(group))["spec"]["minMember"] == 1; }));
}

TEST_F(KubeClusterTest, ThatTheSchedulersDefinitionIsMissingIsTold) {
  gang_ = {GangScheduler::kVolcano, "volcano"};
  server_.put(kJobsOfLab + std::string("job"), gangObject(2));
  server_.refuse([](const HttpRequest& request) -> std::optional<HttpResponse> {
    if (request.target.find("podgroups") == std::string::npos) return std::nullopt;
    return MemoryApiserver::failure(404, "NotFound");
  });
  start();
  const auto seen = cluster_->observe(kJob);
  EXPECT_TRUE(absl::IsUnavailable(cluster_->createTask(seen->job, {v1::ROLE_WORKER, 0}, 1)));
  const auto refusal = cluster_->observe(kJob)->refusal;
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->reason, "GangSchedulerMissing");
  EXPECT_EQ(
      refusal->message,
      "the cluster has no podgroups.scheduling.volcano.sh: is the scheduler volcano installed?");
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
  const auto sees = [&](const std::string& state) {
    const auto seen = cluster_->observe(kJob);
    return seen.ok() && seen->job.status().state() == state;
  };
  EXPECT_TRUE(eventually([&] { return sees("Created"); }));
  server_.setVersion(100);
  // As a planner does: what was seen before the restore is refused as a conflict, and seen again.
  status.set_state("Running");
  EXPECT_TRUE(eventually([&] {
    const auto seen = cluster_->observe(kJob);
    return seen.ok() && cluster_->writeStatus(seen->job, status).ok();
  }));
  EXPECT_TRUE(eventually([&] { return sees("Running"); }));
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

// Nobody watches them: they are looked at in turns.
TEST_F(KubeClusterTest, WhatTasksShareComesBack) {
  shared_every_ = Duration::zero();
  policy_ = PolicyOptions{.agent_from = Json::array({{{"podSelector", Json::object()}}}),
                          .metrics_from = Json::array()};
  server_.put(kJobsOfLab + std::string("job"), jobObject());
  start();
  auto seen = cluster_->observe(kJob);
  ASSERT_TRUE(seen.ok()) << seen.status();
  ASSERT_TRUE(cluster_->createTask(seen->job, {v1::ROLE_WORKER, 0}, 1).ok());
  ASSERT_TRUE(eventually([&] { return cluster_->observe(kJob).ok(); }));

  const std::string service = "/api/v1/namespaces/lab/services/" + serviceName(seen->job);
  const std::string policy =
      "/apis/networking.k8s.io/v1/namespaces/lab/networkpolicies/" + policyName(seen->job);
  const std::string secret = "/api/v1/namespaces/lab/secrets/" + secretName(seen->job);
  const Json service_before = server_.get(service).value()["spec"];
  const Json policy_before = server_.get(policy).value()["spec"];
  const auto edit = [this](const std::string& path, const Json& patch) {
    Json object = server_.get(path).value();
    object["spec"].merge_patch(patch);
    server_.put(path, object);
  };
  edit(service, {{"ports", {{{"name", "task"}, {"port", 1}}}}, {"selector", {{"of", "others"}}}});
  edit(policy, {{"podSelector", {{"matchLabels", {{"of", "others"}}}}},
                {"ingress", Json::array({Json::object()})},
                {"egress", Json::array()}});
  server_.remove(secret);
  EXPECT_TRUE(cluster_->observe(kJob).ok());
  EXPECT_EQ(server_.get(service).value()["spec"], service_before);
  EXPECT_EQ(server_.get(policy).value()["spec"], policy_before);
  EXPECT_TRUE(server_.get(secret).has_value());
  // What is as it should be is not written; of a Secret only whoever tries to create it learns
  // that.
  const std::size_t calls = server_.calls().size();
  EXPECT_TRUE(cluster_->observe(kJob).ok());
  const std::vector<std::string> said = server_.calls();
  ASSERT_GT(said.size(), calls);
  for (std::size_t i = calls; i < said.size(); ++i)
    EXPECT_TRUE(said[i].starts_with("GET") || said[i].find("/secrets") != std::string::npos)
        << said[i];

  server_.remove(service);
  EXPECT_TRUE(cluster_->observe(kJob).ok());
  EXPECT_TRUE(server_.get(service).has_value());

  // What goes with its job does not.
  Json going = jobObject();
  going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
  server_.put(kJobsOfLab + std::string("job"), going);
  ASSERT_TRUE(eventually([&] {
    const auto now = cluster_->observe(kJob);
    return now.ok() && now->job.metadata().has_deletion_timestamp();
  }));
  server_.remove(service);
  EXPECT_TRUE(cluster_->observe(kJob).ok());
  EXPECT_FALSE(server_.get(service).has_value());
}

// A name is one of a Service, which programs alone have that know nothing of the job.
TEST_F(KubeClusterTest, WhoHasNoServiceGoesByAddresses) {
  for (const bool brings_model : {false, true}) {
    Json job = jobObject();
    job["metadata"]["name"] = brings_model ? "brings" : "foreign";
    job["metadata"]["uid"] = brings_model ? "u2" : "u1";
    if (brings_model) job["spec"]["training"] = {{"model", {{"name", "program"}}}};
    server_.put(kJobsOfLab + job["metadata"]["name"].get<std::string>(), job);
  }
  start();
  for (const bool brings_model : {false, true}) {
    const JobKey key{"lab", brings_model ? "brings" : "foreign"};
    const auto seen = cluster_->observe(key);
    ASSERT_TRUE(seen.ok()) << seen.status();
    ASSERT_TRUE(cluster_->createTask(seen->job, {v1::ROLE_WORKER, 0}, 1).ok());
    std::string host = "?";
    ASSERT_TRUE(eventually([&] {
      const auto now = cluster_->observe(key);
      if (!now.ok() || now->tasks.empty()) return false;
      host = now->tasks[0].host;
      return true;
    }));
    const bool service =
        server_.get("/api/v1/namespaces/lab/services/" + serviceName(seen->job)).has_value();
    EXPECT_EQ(service, !brings_model);
    EXPECT_EQ(host.empty(), !service) << host;
  }
}

TEST_F(KubeClusterTest, WhatTasksShareIsLookedAtInTurns) {
  server_.put(kJobsOfLab + std::string("job"), jobObject());
  server_.put(kPodsOfLab + std::string("job-worker-0"), pod("job-worker-0", "u1"));
  start();
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(cluster_->observe(kJob).ok());
  // A job that is taken up is not written to at once: there may be thousands.
  EXPECT_TRUE(server_.calls().empty()) << testing::PrintToString(server_.calls());
}

// A misspelt field is dropped by an apiserver that is not asked to say so.
TEST_F(KubeClusterTest, AJobsFirstPodsHaveNoUnknownFields) {
  server_.put(kJobsOfLab + std::string("job"), jobObject());
  std::vector<std::string> targets;
  server_.refuse([&](const HttpRequest& request) -> std::optional<HttpResponse> {
    if (request.method == "POST" && request.target.find("/pods") != std::string::npos)
      targets.push_back(request.target);
    return std::nullopt;
  });
  start();
  auto seen = cluster_->observe(kJob);
  ASSERT_TRUE(seen.ok()) << seen.status();
  ASSERT_TRUE(cluster_->createTask(seen->job, {v1::ROLE_WORKER, 0}, 1).ok());
  v1::Membership membership;
  membership.set_uid("u1");
  membership.set_revision(1);
  ASSERT_TRUE(eventually([&] { return cluster_->observe(kJob).ok(); }));
  ASSERT_TRUE(cluster_->publish(seen->job, membership).ok());
  ASSERT_TRUE(eventually([&] { return cluster_->observe(kJob).ok(); }));
  ASSERT_TRUE(cluster_->createTask(seen->job, {v1::ROLE_WORKER, 1}, 1).ok());
  EXPECT_EQ(targets, (std::vector<std::string>{"/api/v1/namespaces/lab/pods?fieldValidation=Strict",
                                               "/api/v1/namespaces/lab/pods"}));
}

}  // namespace
}  // namespace trainyard::control
