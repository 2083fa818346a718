// `trainyard doctor` in a cluster: what the apiserver of this process tells becomes findings.
#include "cli/doctor/cluster_findings.h"
#include "cli/kube/cluster_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/doctor_cases.h"
#include "tests/cli/fake_apiserver.h"

namespace trainyard::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr UnixMillis kDoctorNow = 1'700'000'000'000;  // 2023-11-14T22:13:20Z
const Release kRelease{"0.1.0", 1, 29};

// Of everything one that is as it should be.
ClusterFacts goodCluster() {
  ClusterFacts facts;
  facts.server = "https://here";
  facts.ns = "lab";
  facts.version = KubeVersion{1, 34, "v1.34.2"};
  facts.definition = DefinitionFacts{true, true, "", {}};
  OperatorFacts found;
  found.ns = found.name = found.account = found.lease = "trainyard";
  found.version = "0.1.0";
  found.wanted = found.ready = 2;
  found.leader = LeaderFacts{"trainyard-1", true, 3};
  found.rights = std::vector<Right>{{"create", "", "pods", "", "", true}};
  facts.operators = OperatorsFacts{{found}, true};
  facts.rights = std::vector<Right>{{"get", "", "pods", "log", "trainyard logs", true},
                                    {"list", "", "pods", "", "trainyard describe", true}};
  facts.space = NamespaceFacts{true, false, "restricted"};
  facts.nodes = NodesFacts{3, 3, 3, 8};
  facts.storage_classes = std::vector<StorageClassFacts>{{"fast", "example.com/nfs", true, false}};
  facts.claims = std::vector<ClaimFacts>{{"job", "Bound", "fast", true}};
  facts.used_up = std::vector<QuotaUse>{};
  facts.network_policies = 0;
  facts.queues = std::vector<std::string>{};
  facts.jobs = std::vector<JobView>{clusterView(sampleJob()).value()};
  return facts;
}

std::string textOf(const std::vector<Finding>& findings) {
  return diagnosisText({"here", findings}, false);
}

TEST(DoctorClusterTest, GoldenOfAGoodCluster) {
  EXPECT_EQ("\n" + textOf(clusterFindings(goodCluster(), kRelease, kDoctorNow)), R"(
Apiserver
  ok       https://here answers: Kubernetes v1.34.2
Operator
  ok       the definition of TrainingJob has the fields of this release
  ok       operator trainyard/trainyard: 2 of 2 ready
  ok       operator trainyard/trainyard is 0.1.0
  ok       trainyard-1 leads
  ok       ServiceAccount trainyard/trainyard may do its work in lab
What you may do
  ok       all that the commands need in namespace lab
Namespace
  ok       namespace lab with pod security restricted, which tasks keep to
  ok       no quota is used up
  ok       no NetworkPolicy
Storage
  ok       default storage class fast (example.com/nfs)
  ok       claim job is bound, ReadWriteMany
Nodes
  ok       3 of 3 nodes take pods
  note     8 nvidia.com/gpu on these nodes
Queues
  note     neither Kueue, Volcano nor scheduler-plugins is there
Jobs
  ok       1 of 1 without trouble
here: no problems
)");
}

using ClusterCase = FindingCase<ClusterFacts>;

const Status kForbidden = absl::PermissionDeniedError("forbidden");

OperatorFacts& theOperator(ClusterFacts& facts) {
  return facts.operators->found[0];
}

JobView jobWith(const std::string& state, const Json& conditions) {
  Json job = sampleJob();
  job["status"]["state"] = state;
  job["status"]["conditions"] = conditions;
  return clusterView(job).value();
}

JobView jobWithCondition(const std::string& type, const std::string& status,
                         const std::string& reason) {
  return jobWith(
      "Running",
      {{{"type", type}, {"status", status}, {"reason", reason}, {"message", "told why"}}});
}

JobView pendingJob() {
  Json job = sampleJob();
  job.erase("status");
  return clusterView(job).value();
}

const std::vector<ClusterCase>& operatorCases() {
  static const std::vector<ClusterCase> kCases = {
      {[](ClusterFacts& f) { f.version->minor = 28; }, kIsProblem, "which is older than 1.29",
       "upgrade"},
      {[](ClusterFacts& f) { f.version = kForbidden; }, kIsUnknown, "its version: forbidden",
       "right"},
      {[](ClusterFacts& f) { f.definition->there = false; }, kIsProblem, "knows no TrainingJobs",
       "helm install trainyard"},
      {[](ClusterFacts& f) { f.definition->trouble = "names in conflict"; }, kIsProblem,
       "is not taken: names in conflict", "kubectl describe crd"},
      {[](ClusterFacts& f) { f.definition->served = false; }, kIsProblem,
       "does not serve version v1alpha1", "helm upgrade"},
      {[](ClusterFacts& f) {
         f.definition->difference.missing = {"a", "b", "c", "d", "e"};
       },
       kIsWarning, "it has no a, b, c and 2 more", "helm upgrade"},
      {[](ClusterFacts& f) { f.definition->difference.unknown = {"spec.new"}; }, kIsNote,
       "is newer: it also has spec.new", "command line"},
      {[](ClusterFacts& f) { f.definition = kForbidden; }, kIsUnknown,
       "the definition of TrainingJob: forbidden", "right"},
      {[](ClusterFacts& f) { f.operators->found.clear(); }, kIsProblem, "no operator is installed",
       "helm install trainyard"},
      {[](ClusterFacts& f) { f.operators = OperatorsFacts{}; }, kIsUnknown,
       "operator: there is none in lab and trainyard", "right"},
      {[](ClusterFacts& f) { f.operators = kForbidden; }, kIsUnknown, "operator: forbidden",
       "right"},
      {[](ClusterFacts& f) { theOperator(f).watches = {"prod"}; }, kIsProblem,
       "operator trainyard/trainyard looks after namespace prod only, not after lab",
       "watchNamespaces"},
      {[](ClusterFacts& f) {
         theOperator(f).watches = {"prod", "dev"};
       },
       kIsProblem,
       "operator trainyard/trainyard looks after the namespaces prod, dev only, not after lab",
       "watchNamespaces"},
      {[](ClusterFacts& f) { theOperator(f).ready = 1; }, kIsWarning, "1 of 2 ready",
       "kubectl -n trainyard describe pods"},
      {[](ClusterFacts& f) {
         theOperator(f).ready = 0;
         theOperator(f).trouble = "ImagePullBackOff: no such image";
       },
       kIsProblem, "0 of 2 ready: ImagePullBackOff: no such image", "kubectl -n trainyard"},
      {[](ClusterFacts& f) { theOperator(f).wanted = 0; }, kIsProblem, "2 of 0 ready",
       "scale deployment/trainyard"},
      {[](ClusterFacts& f) { theOperator(f).version = "0.2.0"; }, kIsWarning,
       "is 0.2.0, trainyard here is 0.1.0", "one release"},
      {[](ClusterFacts& f) { theOperator(f).version = ""; }, kIsUnknown,
       "its image does not say its version", "0.1.0"},
      {[](ClusterFacts& f) { theOperator(f).leader->holder = ""; }, kIsProblem, "nobody leads",
       "kubectl -n trainyard logs"},
      {[](ClusterFacts& f) {
         theOperator(f).leader = LeaderFacts{"old-1", false, 77};
       },
       kIsProblem, "old-1 leads, but has not renewed its lease for 77 s", "kubectl"},
      {[](ClusterFacts& f) {
         theOperator(f).leader = LeaderFacts{"old-1", false, -3000};
       },
       kIsProblem, "has not renewed its lease while it was watched", "kubectl"},
      {[](ClusterFacts& f) { theOperator(f).leader = kForbidden; }, kIsUnknown,
       "who leads (operator trainyard/trainyard): forbidden", "right"},
      {[](ClusterFacts& f) { theOperator(f).rights->at(0).allowed = false; }, kIsProblem,
       "ServiceAccount trainyard/trainyard may not, in lab: create pods", "rbac.create=true"},
      {[](ClusterFacts& f) { theOperator(f).rights = kForbidden; }, kIsUnknown,
       "what ServiceAccount trainyard/trainyard may do in lab: forbidden", "right"},
  };
  return kCases;
}

const std::vector<ClusterCase>& namespaceCases() {
  static const std::vector<ClusterCase> kCases = {
      {[](ClusterFacts& f) { f.rights = kForbidden; }, kIsUnknown, "your rights: forbidden",
       "right"},
      {[](ClusterFacts& f) {
         for (Right& right : *f.rights) right.allowed = false;
       },
       kIsProblem,
       "not allowed in namespace lab: get pods/log (trainyard logs), list pods (trainyard "
       "describe)",
       "the role `edit` in namespace lab"},
      {[](ClusterFacts& f) { f.space->there = false; }, kIsProblem, "there is no namespace lab",
       "kubectl create namespace lab"},
      {[](ClusterFacts& f) { f.space->terminating = true; }, kIsProblem, "is being deleted", "-n"},
      {[](ClusterFacts& f) { f.space->pod_security = ""; }, kIsOk, "no pod security standard", ""},
      {[](ClusterFacts& f) { f.space = kForbidden; }, kIsUnknown, "namespace lab: forbidden",
       "right"},
      {[](ClusterFacts& f) {
         f.used_up->push_back({"q", "pods", "10", "10"});
       },
       kIsWarning, "quota q is used up: pods 10 of 10", "larger quota"},
      {[](ClusterFacts& f) { f.used_up = kForbidden; }, kIsUnknown, "quotas: forbidden", "right"},
      {[](ClusterFacts& f) { f.network_policies = 2; }, kIsNote, "2 NetworkPolicies", "2230"},
      {[](ClusterFacts& f) { f.network_policies = kForbidden; }, kIsUnknown,
       "network policies: ", "right"},
      {[](ClusterFacts& f) { f.storage_classes->clear(); }, kIsNote,
       "no default among 0 storage classes", "claims must name"},
      {[](ClusterFacts& f) { f.storage_classes = kForbidden; }, kIsUnknown,
       "storage classes: ", "right"},
      {[](ClusterFacts& f) {
         f.claims->push_back({"data", "Pending", "fast"});
       },
       kIsWarning, "claim data is Pending", "kubectl -n lab describe pvc data"},
      {[](ClusterFacts& f) {
         f.claims->push_back({"data", "Lost", "fast"});
       },
       kIsWarning, "claim data is Lost", "describe pvc data"},
      {[](ClusterFacts& f) {
         f.storage_classes->push_back({"late", "example.com/disk", false, true});
         f.claims->push_back({"data", "Pending", "late"});
       },
       kIsNote, "claim data is bound when a pod uses it", ""},
      {[](ClusterFacts& f) { f.claims->clear(); }, kIsNote, "no bound claim with ReadWriteMany",
       "spec.storage.volume"},
      {[](ClusterFacts& f) { f.claims = kForbidden; }, kIsUnknown, "claims: forbidden", "right"},
      {[](ClusterFacts& f) { f.nodes = kForbidden; }, kIsUnknown, "nodes and GPUs: forbidden",
       "right"},
      {[](ClusterFacts& f) { f.nodes->usable = 0; }, kIsWarning, "0 of 3 nodes take pods",
       "uncordon"},
      {[](ClusterFacts& f) { f.nodes->amd64 = 0; }, kIsProblem, "none of them amd64", "amd64"},
      {[](ClusterFacts& f) { f.nodes->amd64 = 2; }, kIsWarning, "2 of them amd64",
       "kubernetes.io/arch: amd64"},
      {[](ClusterFacts& f) { f.nodes->gpus = 0; }, kIsNote, "no node has nvidia.com/gpu",
       "device plugin"},
      {[](ClusterFacts& f) { f.queues = std::vector<std::string>{"Kueue"}; }, kIsNote,
       "Kueue is installed", ""},
      {[](ClusterFacts& f) { theOperator(f).gang = &kCoscheduling; }, kIsWarning,
       "makes PodGroups of scheduling.x-k8s.io for jobs that start as a whole, and the cluster "
       "does "
       "not know them",
       "install scheduler-plugins (coscheduling), or helm upgrade"},
      {[](ClusterFacts& f) { theOperator(f).queues = true; }, kIsWarning,
       "lets jobs wait in queues of Kueue, and the cluster does not know it",
       "install Kueue, or helm upgrade"},
      {[](ClusterFacts& f) { f.queues = kForbidden; }, kIsUnknown, "other schedulers: ", "right"},
      {[](ClusterFacts& f) { f.jobs->clear(); }, kIsOk, "none in namespace lab", ""},
      {[](ClusterFacts& f) { f.jobs = kForbidden; }, kIsUnknown, "jobs: forbidden", "right"},
  };
  return kCases;
}

TEST(DoctorClusterTest, EachFindingSaysWhatToDo) {
  std::vector<ClusterCase> cases = operatorCases();
  cases.insert(cases.end(), namespaceCases().begin(), namespaceCases().end());
  expectOneFindingEach(goodCluster(), cases, [](const ClusterFacts& facts) {
    return clusterFindings(facts, kRelease, kDoctorNow);
  });
}

TEST(DoctorClusterTest, TellsWhatStillWorksWhereSomeIsNotAllowed) {
  ClusterFacts facts = goodCluster();
  facts.rights->at(0).allowed = false;
  const std::string text = textOf(clusterFindings(facts, kRelease, kDoctorNow));
  EXPECT_THAT(text, HasSubstr("  ok       list pods\n"));
  EXPECT_THAT(text, HasSubstr("  warning  not allowed in namespace lab: get pods/log (trainyard "
                              "logs)\n"));
}

TEST(DoctorClusterTest, TwoOperatorsAreOneTooMany) {
  ClusterFacts facts = goodCluster();
  facts.operators->found.push_back(theOperator(facts));
  facts.operators->found[1].ns = "other";
  EXPECT_THAT(textOf(clusterFindings(facts, kRelease, kDoctorNow)),
              HasSubstr("2 operators look after namespace lab: trainyard/trainyard, "
                        "other/trainyard"));
  facts.operators->found[1].watches = {"prod"};
  EXPECT_THAT(textOf(clusterFindings(facts, kRelease, kDoctorNow)),
              Not(HasSubstr("operators look after")));
}

TEST(DoctorClusterTest, NamesJobsInTrouble) {
  ClusterFacts facts = goodCluster();
  const Json failed = {{{"type", "Failed"},
                        {"status", "True"},
                        {"reason", "BadInput"},
                        {"message", "worker-1: no such file"}}};
  facts.jobs = std::vector<JobView>{jobWithCondition("Stalled", "True", "NotSupported"),
                                    jobWithCondition("AgentsReachable", "False", "NoAnswer"),
                                    jobWithCondition("Reconciling", "True", "ImagePullBackOff"),
                                    jobWithCondition("Reconciling", "True", "TasksNotReady"),
                                    pendingJob(),
                                    jobWith("Failed", failed),
                                    jobWith("Failed", failed),
                                    jobWith("Failed", failed),
                                    jobWith("Failed", failed)};
  const std::string text = textOf(clusterFindings(facts, kRelease, kDoctorNow));
  EXPECT_EQ("\n" + text.substr(text.find("Jobs\n")), R"(
Jobs
  warning  job fashion: Stalled True (NotSupported): told why
  warning  job fashion: AgentsReachable False (NoAnswer): told why
  warning  job fashion: Reconciling True (ImagePullBackOff): told why
             trainyard describe fashion -n lab; docs/conditions.md says what the reason means
  warning  job fashion: no operator has taken it up
             is there an operator that looks after this namespace (above)? Else spec.runPolicy.managedBy may name another controller
  note     job fashion has failed: BadInput: worker-1: no such file
  note     job fashion has failed: BadInput: worker-1: no such file
  note     job fashion has failed: BadInput: worker-1: no such file
  note     1 more jobs have failed
  ok       1 of 9 without trouble
here: no problems, 4 warnings
)");
}

}  // namespace
}  // namespace trainyard::cli
