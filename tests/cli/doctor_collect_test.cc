// What `trainyard doctor` asks of an apiserver, one of this process, and makes of the answers.
#include <cstdlib>
#include <functional>

#include "base/process/files.h"
#include "cli/doctor/cluster_findings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/job/yaml_json.h"
#include "operator/kube/lease_store.h"
#include "tests/cli/fake_apiserver.h"

namespace trainyard::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

// As a cluster has it where this release is installed.
Json ourDefinition() {
  const std::string path = std::string(std::getenv("TRAINYARD_SOURCE")) + "/deploy/crds.yaml";
  return control::yamlToJson(readFile(path, 1 << 20).value(), path).value();
}

class DoctorCollectTest : public testing::Test {
 protected:
  DoctorCollectTest() {
    server_.answer("GET /version", {{"major", "1"}, {"minor", "29+"}, {"gitVersion", "v1.29.1"}});
    allow("selfsubjectaccessreviews", [](const Json&) { return true; });
    allow("subjectaccessreviews", [](const Json&) { return true; });
    server_.answer("GET /apis", {{"groups", {{{"name", "kueue.x-k8s.io"}}}}});
    for (const char* path :
         {"/apis/storage.k8s.io/v1/storageclasses", "/api/v1/nodes",
          "/api/v1/namespaces/lab/resourcequotas", "/api/v1/namespaces/lab/persistentvolumeclaims",
          "/apis/networking.k8s.io/v1/namespaces/lab/networkpolicies",
          "/apis/trainyard.dev/v1alpha1/namespaces/lab/trainingjobs"}) {
      list(path, Json::array());
    }
    server_.answer("GET /api/v1/namespaces/lab", Json::parse(R"({"metadata": {"labels":
                       {"pod-security.kubernetes.io/enforce": "baseline"}},
                       "status": {"phase": "Active"}})"));
    server_.answer(kDefinition, definition_);
    list(kDeployments, Json::array({deployment_}));
    lease(systemClock().unixMillis());
  }

  static constexpr char kDefinition[] =
      "GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions/trainingjobs.trainyard.dev";
  static constexpr char kDeployments[] = "/apis/apps/v1/deployments";
  static constexpr char kLease[] = "GET /apis/coordination.k8s.io/v1/namespaces/system/leases/ty";

  void list(const std::string& path, const Json& items) {
    server_.answer("GET " + path, {{"items", items}});
  }
  void forbid(const std::string& what) {
    server_.refuse(what, 403, "Forbidden", "may not " + what);
  }
  void allow(const std::string& reviews, std::function<bool(const Json&)> allowed) {
    server_.on("POST /apis/authorization.k8s.io/v1/" + reviews, [=](const HttpRequest& request) {
      const Json spec = Json::parse(request.body)["spec"];
      const Json status{{"status", {{"allowed", allowed(spec)}}}};
      return HttpResponse{201, {}, status.dump()};
    });
  }
  void lease(UnixMillis renewed) {
    Json object = control::toLease({"ty-1", 15, renewed, renewed, 0, ""}, "system", "ty");
    object["metadata"]["resourceVersion"] = "1";
    server_.answer(kLease, object);
  }
  ClusterFacts collect() {
    return collectCluster(server_, systemClock(), {"https://here", "lab", "test", patience_});
  }
  std::string diagnosis() {
    const Release release{"0.1.0", 1, 29};
    const auto findings = clusterFindings(collect(), release, systemClock().unixMillis());
    return diagnosisText({"here", findings}, false);
  }

  FakeApiserver server_;
  Duration patience_{};
  const Json definition_ = ourDefinition();
  const Json deployment_ = Json::parse(R"({
      "metadata": {"name": "ty", "namespace": "system",
                   "labels": {"app.kubernetes.io/version": "0.1.0"}},
      "spec": {"replicas": 2, "template": {"spec": {"serviceAccountName": "account", "containers": [
          {"image": "here:5000/trainyard-operator@sha256:1",
           "args": ["--lease-name=ty", "--job-network-policy={}"]}]}}},
      "status": {"readyReplicas": 2}})");
};

TEST_F(DoctorCollectTest, GoldenOfWhatIsThere) {
  EXPECT_EQ("\n" + diagnosis(), R"(
Apiserver
  ok       https://here answers: Kubernetes v1.29.1
Operator
  ok       the definition of TrainingJob has the fields of this release
  ok       operator system/ty: 2 of 2 ready
  ok       operator system/ty is 0.1.0
  ok       ty-1 leads
  ok       ServiceAccount system/account may do its work in lab
What you may do
  ok       all that the commands need in namespace lab
Namespace
  ok       namespace lab with pod security baseline, which tasks keep to
  ok       no quota is used up
  ok       no NetworkPolicy
Storage
  note     no default among 0 storage classes
             claims must name a class, or a volume that is there
  note     no bound claim with ReadWriteMany
             a job directory that lasts needs one (spec.storage.volume), of a class such as NFS or CephFS, or one that a single node mounts (with spec.storage.access: Coordinator), or an object store (spec.storage.s3): else checkpoints end with their pods
Nodes
  warning  0 of 0 nodes take pods
             pods wait until an autoscaler adds nodes; else: kubectl get nodes, and kubectl uncordon NODE
Queues
  note     Kueue is installed; it may hold back pods of jobs
Jobs
  ok       none in namespace lab
here: no problems, 1 warning
)");
}

TEST_F(DoctorCollectTest, WhatMayNotBeAskedIsUnknown) {
  forbid("GET /api/v1/namespaces/lab");
  for (const char* path :
       {"/apis/storage.k8s.io/v1/storageclasses", "/api/v1/nodes",
        "/api/v1/namespaces/lab/resourcequotas", "/api/v1/namespaces/lab/persistentvolumeclaims",
        "/apis/networking.k8s.io/v1/namespaces/lab/networkpolicies",
        "/apis/trainyard.dev/v1alpha1/namespaces/lab/trainingjobs"}) {
    forbid(std::string("GET ") + path);
  }
  forbid(kLease);
  forbid("POST /apis/authorization.k8s.io/v1/subjectaccessreviews");
  forbid("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
  const std::string text = diagnosis();
  for (const char* group : {"Namespace\n  unknown", "Storage\n  unknown", "Nodes\n  unknown",
                            "Jobs\n  unknown", "What you may do\n  unknown"}) {
    EXPECT_THAT(text, HasSubstr(group));
  }
  EXPECT_THAT(text, HasSubstr("unknown  who leads (operator system/ty): "));
  EXPECT_THAT(text, HasSubstr("unknown  what ServiceAccount system/account may do in lab: "));
  EXPECT_THAT(text, HasSubstr("here: no problems, 10 unknown"));
}

TEST_F(DoctorCollectTest, AnOlderDefinitionLacksFields) {
  Json older = definition_;
  Json& version = older["spec"]["versions"][0];
  version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["worker"]["properties"]
      .erase("minReplicas");
  server_.answer(kDefinition, older);
  EXPECT_THAT(diagnosis(), HasSubstr("it has no spec.worker.minReplicas\n"));
  version["served"] = false;
  server_.answer(kDefinition, older);
  EXPECT_THAT(diagnosis(), HasSubstr("does not serve version v1alpha1"));
  server_.refuse(kDefinition, 404, "NotFound", "no such definition");
  EXPECT_THAT(diagnosis(), HasSubstr("the cluster knows no TrainingJobs"));
  EXPECT_THAT(diagnosis(), Not(HasSubstr("Jobs\n  ")));
}

TEST_F(DoctorCollectTest, WhoMayNotReadTheDefinitionReadsWhatIsPublished) {
  forbid(kDefinition);
  const std::string published = "GET /openapi/v3/apis/trainyard.dev/v1alpha1";
  Json schema = definition_["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
  schema["properties"]["spec"]["properties"]["newer"] = {{"type", "string"}};
  server_.answer(published, {{"components",
                              {{"schemas",
                                {{"dev.trainyard.v1alpha1.TrainingJob", schema},
                                 {"dev.trainyard.v1alpha1.List", {}}}}}}});
  EXPECT_THAT(diagnosis(), HasSubstr("is newer: it also has spec.newer"));
  server_.answer(published, Json::object(), 404);
  EXPECT_THAT(diagnosis(), HasSubstr("the cluster knows no TrainingJobs"));
}

TEST_F(DoctorCollectTest, WhoMayNotLookEverywhereLooksInTwoNamespaces) {
  forbid(std::string("GET ") + kDeployments);
  EXPECT_THAT(diagnosis(), HasSubstr("unknown  operator: "));
  list("/apis/apps/v1/namespaces/lab/deployments", Json::array());
  EXPECT_THAT(diagnosis(), HasSubstr("there is none in lab and trainyard"));
  list("/apis/apps/v1/namespaces/trainyard/deployments", Json::array({deployment_}));
  EXPECT_THAT(diagnosis(), HasSubstr("operator system/ty: 2 of 2 ready"));
}

TEST_F(DoctorCollectTest, SaysWhyAnOperatorIsNotReady) {
  Json broken = deployment_;
  broken["status"] = {
      {"readyReplicas", 0},
      {"conditions",
       {{{"type", "ReplicaFailure"}, {"status", "True"}, {"message", "exceeded quota"}}}}};
  list(kDeployments, Json::array({broken}));
  EXPECT_THAT(diagnosis(), HasSubstr("0 of 2 ready: exceeded quota"));
  const std::string pods = "/api/v1/namespaces/system/pods";
  list(pods, Json::parse(R"([{"status": {"conditions": [
      {"type": "PodScheduled", "status": "False", "message": "no node"}]}}])"));
  EXPECT_THAT(diagnosis(), HasSubstr("0 of 2 ready: no node"));
  list(pods, Json::parse(R"([{"status": {"containerStatuses": [{"state": {"waiting":
      {"reason": "ImagePullBackOff", "message": "no such image"}}}]}}])"));
  EXPECT_THAT(diagnosis(), HasSubstr("0 of 2 ready: ImagePullBackOff: no such image"));
}

TEST_F(DoctorCollectTest, TheVersionOfAnImageIsItsTag) {
  Json other = deployment_;
  Json& container = other["spec"]["template"]["spec"]["containers"][0];
  container["image"] = "here:5000/trainyard-operator:0.3.0";
  container["args"] = {"--namespace=prod", "--namespace=lab2"};
  list(kDeployments, Json::array({other}));
  const auto operators = collect().operators;
  ASSERT_TRUE(operators.ok());
  EXPECT_EQ(operators->found[0].version, "0.3.0");
  EXPECT_THAT(operators->found[0].watches, testing::ElementsAre("prod", "lab2"));
  EXPECT_EQ(operators->found[0].lease, "");
}

TEST_F(DoctorCollectTest, ALeaseIsOldWhereNobodyRenewsIt) {
  lease(systemClock().unixMillis() - 600'000);
  EXPECT_THAT(diagnosis(), HasSubstr("ty-1 leads, but has not renewed its lease for 60"));
  server_.refuse(kLease, 404, "NotFound", "no lease");
  EXPECT_THAT(diagnosis(), HasSubstr("nobody leads"));
}

TEST_F(DoctorCollectTest, ALeaseThatIsRenewedByAnotherClockIsFresh) {
  patience_ = std::chrono::seconds(60);
  UnixMillis renewed = systemClock().unixMillis() + 3'600'000;
  server_.on(kLease, [&](const HttpRequest&) {
    Json object = control::toLease({"ty-1", 15, 1, renewed += 2000, 0, ""}, "system", "ty");
    object["metadata"]["resourceVersion"] = std::to_string(renewed);
    return HttpResponse{200, {}, object.dump()};
  });
  EXPECT_THAT(diagnosis(), HasSubstr("ok       ty-1 leads"));
}

TEST_F(DoctorCollectTest, RightsAreAskedInTheNamespace) {
  allow("selfsubjectaccessreviews", [](const Json& spec) {
    const Json& what = spec["resourceAttributes"];
    return what["namespace"] == "lab" && what["subresource"] != "log";
  });
  allow("subjectaccessreviews", [](const Json& spec) {
    return spec["user"] == "system:serviceaccount:system:account" &&
           spec["resourceAttributes"]["resource"] != "networkpolicies";
  });
  const std::string text = diagnosis();
  EXPECT_THAT(text, HasSubstr("not allowed in namespace lab: get pods/log (trainyard logs)\n"));
  EXPECT_THAT(text, HasSubstr("may not, in lab: create networkpolicies\n"));
}

TEST_F(DoctorCollectTest, AnOperatorThatMakesPodGroupsNeedsTheirDefinitionAndTheRight) {
  Json gang = deployment_;
  gang["spec"]["template"]["spec"]["containers"][0]["args"].push_back("--gang-scheduler=Volcano");
  list(kDeployments, Json::array({gang}));
  allow("subjectaccessreviews", [](const Json& spec) {
    return spec["resourceAttributes"]["group"] != "scheduling.volcano.sh";
  });
  EXPECT_THAT(diagnosis(), HasSubstr("makes PodGroups of scheduling.volcano.sh"));
  EXPECT_THAT(diagnosis(), HasSubstr("may not, in lab: create podgroups\n"));
  server_.answer("GET /apis", {{"groups", {{{"name", "scheduling.volcano.sh"}}}}});
  EXPECT_THAT(diagnosis(), Not(HasSubstr("makes PodGroups")));
}

TEST_F(DoctorCollectTest, AnOperatorWithQueuesNeedsKueueAndTheRights) {
  Json queues = deployment_;
  queues["spec"]["template"]["spec"]["containers"][0]["args"].push_back("--kueue");
  list(kDeployments, Json::array({queues}));
  allow("subjectaccessreviews", [](const Json& spec) {
    return spec["resourceAttributes"]["resource"] != "resourceflavors";
  });
  EXPECT_THAT(diagnosis(), HasSubstr("may not, in lab: get resourceflavors\n"));
  EXPECT_THAT(diagnosis(), Not(HasSubstr("lets jobs wait in queues")));
  server_.answer("GET /apis", {{"groups", Json::array()}});
  EXPECT_THAT(diagnosis(), HasSubstr("lets jobs wait in queues of Kueue, and the cluster"));
}

TEST_F(DoctorCollectTest, CountsNodesQuotasAndClaims) {
  list("/api/v1/nodes", Json::parse(R"([
      {"status": {"conditions": [{"type": "Ready", "status": "True"}],
                  "nodeInfo": {"architecture": "amd64"}, "allocatable": {"nvidia.com/gpu": "4"}}},
      {"status": {"conditions": [{"type": "Ready", "status": "True"}],
                  "nodeInfo": {"architecture": "arm64"}}},
      {"spec": {"unschedulable": true},
       "status": {"conditions": [{"type": "Ready", "status": "True"}]}},
      {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}])"));
  list("/api/v1/namespaces/lab/resourcequotas", Json::parse(R"([{"metadata": {"name": "q"},
      "status": {"hard": {"pods": "2", "limits.memory": "1Gi", "limits.cpu": "2"},
                 "used": {"pods": "1", "limits.memory": "1024Mi", "limits.cpu": "1900m"}}}])"));
  list("/api/v1/namespaces/lab/persistentvolumeclaims", Json::parse(R"([
      {"metadata": {"name": "a"}, "spec": {"accessModes": ["ReadWriteMany"]},
       "status": {"phase": "Bound"}},
      {"metadata": {"name": "b"}, "spec": {"storageClassName": "late"},
       "status": {"phase": "Pending"}}])"));
  list("/apis/storage.k8s.io/v1/storageclasses", Json::parse(R"([
      {"metadata": {"name": "late", "annotations":
           {"storageclass.kubernetes.io/is-default-class": "true"}},
       "provisioner": "example.com/disk", "volumeBindingMode": "WaitForFirstConsumer"}])"));
  const std::string text = diagnosis();
  EXPECT_THAT(text, HasSubstr("2 of 4 nodes take pods, 1 of them amd64"));
  EXPECT_THAT(text, HasSubstr("4 nvidia.com/gpu on these nodes"));
  EXPECT_THAT(text, HasSubstr("quota q is used up: limits.memory 1024Mi of 1Gi"));
  EXPECT_THAT(text, HasSubstr("here: no problems, 2 warnings"));
  EXPECT_THAT(text, HasSubstr("claim a is bound, ReadWriteMany"));
  EXPECT_THAT(text, HasSubstr("claim b is bound when a pod uses it"));
  EXPECT_THAT(text, HasSubstr("default storage class late (example.com/disk)"));
}

TEST_F(DoctorCollectTest, AnApiserverThatDoesNotAcceptTheUserIsAskedOnce) {
  server_.refuse("GET /version", 401, "Unauthorized", "who are you");
  EXPECT_EQ("\n" + diagnosis(), R"(
Apiserver
  problem  https://here does not accept this user's certificate or token: who are you
             log in again, or name another user: --context NAME, --kubeconfig FILE (`kubectl auth whoami` with the same ones must work)
  unknown  operator, rights, namespace, nodes and jobs: not asked
             the above first
here: 1 problem, 1 unknown
)");
  EXPECT_EQ(server_.requests("").size(), 1);
}

TEST_F(DoctorCollectTest, AnotherServerIsNoApiserver) {
  server_.answer("GET /version", "hello");
  EXPECT_THAT(diagnosis(), HasSubstr("problem  /version: expected a JSON object"));
  server_.answer("GET /version", Json::object(), 404);
  EXPECT_THAT(diagnosis(),
              HasSubstr("problem  https://here is no apiserver: it knows no /version"));
}

// Answers the first requests only.
class FallingSilent : public control::HttpTransport {
 public:
  FallingSilent(FakeApiserver& server, int answers) : server_(server), left_(answers) {}
  StatusOr<HttpResponse> call(const HttpRequest& request, const HttpLimits& limits) override {
    longest_ = std::max(longest_, limits.deadline);
    if (left_-- > 0) return server_.call(request, limits);
    ++unanswered_;
    return absl::DeadlineExceededError("not done");
  }
  Status stream(const HttpRequest&, const HttpLimits&,
                const std::function<bool(const HttpResponse&)>&,
                const std::function<bool(std::string_view)>&) override {
    return absl::UnimplementedError("stream");
  }
  int unanswered() const { return unanswered_; }
  Duration longest() const { return longest_; }

 private:
  FakeApiserver& server_;
  int left_;
  int unanswered_ = 0;
  Duration longest_{};
};

TEST_F(DoctorCollectTest, AfterASilenceNothingMoreIsAsked) {
  for (const int answers : {0, 1, 5, 20}) {
    FallingSilent falling(server_, answers);
    const ClusterFacts facts =
        collectCluster(falling, systemClock(), {"https://here", "lab", "test", patience_});
    EXPECT_EQ(falling.unanswered(), 1) << answers;
    EXPECT_LE(falling.longest(), std::chrono::seconds(5));
    const Release release{"0.1.0", 1, 29};
    const Diagnosis diagnosis{"here", clusterFindings(facts, release, 0)};
    EXPECT_EQ(countOf(diagnosis, FindingLevel::kProblem), answers == 0 ? 1 : 0);
    EXPECT_GT(countOf(diagnosis, FindingLevel::kUnknown), 0);
    EXPECT_FALSE(facts.operators.ok());
  }
}

}  // namespace
}  // namespace trainyard::cli
