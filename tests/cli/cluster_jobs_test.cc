// Jobs of a cluster as the verbs show and change them, against an apiserver of this process.
#include "cli/kube/cluster_jobs.h"

#include "base/process/files.h"
#include "cli/jobs/job_text.h"
#include "cli/kube/cluster_view.h"
#include "cli/kube/connect.h"
#include "cli/kube/submit.h"
#include "cli/run/programs.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/job/written.h"
#include "tests/base/process/temp_dir.h"
#include "tests/cli/fake_apiserver.h"

namespace trainyard::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr UnixMillis kNow = 1'700'000'000'000;  // 2023-11-14T22:13:20Z

TEST(ClusterStateTest, IsWhatHoldsNow) {
  v1::TrainingJob job;
  EXPECT_EQ(clusterState(job), "Pending");
  v1::JobStatus& status = *job.mutable_status();
  status.set_state("Created");
  EXPECT_EQ(clusterState(job), "Starting");
  status.set_state("Running");
  EXPECT_EQ(clusterState(job), "Running");
  job.mutable_spec()->mutable_run_policy()->set_suspend(true);
  EXPECT_EQ(clusterState(job), "Suspending");
  status.set_state("Suspended");
  EXPECT_EQ(clusterState(job), "Suspended");
  job.mutable_spec()->mutable_run_policy()->set_suspend(false);
  EXPECT_EQ(clusterState(job), "Starting") << "resumed, and not yet seen by the operator";
  status.set_state("Failed");
  EXPECT_EQ(clusterState(job), "Failed");
  job.mutable_metadata()->set_deletion_timestamp("2023-11-14T22:12:20Z");
  EXPECT_EQ(clusterState(job), "Terminating");
}

TEST(ClusterViewTest, TableGolden) {
  Json waiting = sampleJob();
  waiting["metadata"]["name"] = "try";
  waiting["metadata"]["namespace"] = "other";
  waiting.erase("status");
  const std::vector<JobView> jobs = {clusterView(sampleJob()).value(),
                                     clusterView(waiting).value()};
  EXPECT_EQ("\n" + jobsTable(jobs, true, kNow, true), R"(
NAMESPACE  NAME     STATE    STEP     WORKERS  PS   LOSS    ACCURACY  EXAMPLES/S  AGE   RESTARTS  CHECKPOINT  STRATEGY         REASON
lab        fashion  Running  200/700  2/2      1/1  0.4741  0.8106    1,333       5m5s  1         112         ParameterServer  -
other      try      Pending  0/700    0/2      0/1  -       -         -           5m5s  0         -           ParameterServer  -
)");
}

TEST(ClusterViewTest, WhatIsAtRestStandsAtItsCheckpoint) {
  Json job = sampleJob();
  job["status"]["state"] = "Suspended";
  job["spec"]["runPolicy"]["suspend"] = true;
  const JobView view = clusterView(job).value();
  EXPECT_EQ(view.step, 112);
  EXPECT_FALSE(view.examples_per_second);
  EXPECT_FALSE(view.attended());
}

TEST(ClusterViewTest, JsonIsTheObjectItself) {
  const auto json = jobJson(clusterView(sampleJob()).value());
  EXPECT_EQ(json["spec"]["newerField"], 1);
  EXPECT_EQ(json["status"]["state"], "Running");
  EXPECT_FALSE(json["metadata"].contains("managedFields"));
  EXPECT_FALSE(json.contains("run"));
}

TEST(ClusterViewTest, DescribeGolden) {
  JobDetails details;
  details.view = clusterView(sampleJob()).value();
  Json stranger = pod("worker-1", kReady);
  stranger["metadata"]["ownerReferences"][0]["uid"] = "another job of this name";
  Json leaving = pod("worker-2", kReady);
  leaving["metadata"]["deletionTimestamp"] = "2023-11-14T22:13:20Z";
  const Json killed = pod("worker-0", kKilled);
  details.tasks = podTasks(details.view, {leaving, killed, pod("ps-0", kReady), stranger});
  const Json twice = Json::parse(R"({"type": "Warning", "reason": "TaskLost", "message": "late",
      "lastTimestamp": "2023-11-14T22:13:00Z", "count": 2})");
  const Json micro = Json::parse(R"({"type": "Normal", "reason": "JobCreated", "message": "early",
      "lastTimestamp": null, "eventTime": "2023-11-14T22:12:20.123456Z"})");
  details.events = clusterEvents({twice, micro});
  EXPECT_EQ("\n" + describeText(details, {{"model", "mlp"}}, kNow, 10), R"(
Name:       fashion
Namespace:  lab
State:      Running
Created:    2023-11-14T22:08:15Z (5m5s ago)
Spec:
  model  mlp
Progress:
  step        200/700
  checkpoint  112
  loss        0.4741
  accuracy    0.8106
  examples/s  1,333
  restarts    1
Tasks:
  NAME      STATE              POD               NODE    LIFE  RESTARTS  AGE
  ps-0      Ready              fashion-ps-0      node-1  1     0         60s
  worker-0  Exited (signal 9)  fashion-worker-0  node-1  1     0         60s
  worker-1  -                  -                 -       0     0         -
  worker-2  Terminating        fashion-worker-2  node-1  1     0         60s
Checkpoints:
  STEP  DURABLE  AGE
  112   yes      20s
Conditions:
  TYPE     STATUS  AGE  REASON         MESSAGE
  Running  True    60s  AllTasksReady  3 of 3
Events:
  AGE  TYPE     REASON      MESSAGE
  60s  Normal   JobCreated  early
  20s  Warning  TaskLost    (x2) late
)");
  details.tasks_hidden = "not known: pods is forbidden";
  EXPECT_THAT(describeText(details, {}, kNow, 10), HasSubstr("\nTasks:  not known: pods is for"));
}

class ClusterJobsTest : public FakeClusterTest {};

TEST_F(ClusterJobsTest, ScalingWaitsUntilTheyAreThere) {
  server_.on(fmt::format("PATCH {}/scale", kJobPath), [this](const HttpRequest&) {
    change([](Json& job) {
      job["spec"]["worker"]["replicas"] = 3;
      job["metadata"]["generation"] = 2;
    });
    return HttpResponse{200, {}, R"({"kind": "Scale"})"};
  });
  Waiting now = waiting_;
  now.wait = false;
  EXPECT_EQ(jobs_->scale("fashion", {.workers = 3}, now).value(), "fashion: workers 2 -> 3");
  EXPECT_EQ(sent(fmt::format("PATCH {}/scale", kJobPath)),
            Json::parse(R"({"metadata": {"uid": "u1"}, "spec": {"replicas": 3}})"));
  now = {true, std::chrono::milliseconds(1)};
  EXPECT_THAT(textOf(jobs_->scale("fashion", {.workers = 3}, now).status()),
              HasSubstr("'fashion' does not run with 3 workers after 0 s: 2 are ready"));
  change([](Json& job) {
    job["status"]["observedGeneration"] = 2;
    job["status"]["worker"] = {{"desired", 3}, {"ready", 3}};
  });
  EXPECT_EQ(jobs_->scale("fashion", {.workers = 3}, waiting_).value(),
            "fashion: workers 3 -> 3, step 200");
}

TEST_F(ClusterJobsTest, ParameterServersAreAChangeOfTheJob) {
  server_.on(std::string("PATCH ") + kJobPath, [this](const HttpRequest& request) {
    change([](Json& job) {
      job["spec"]["ps"]["replicas"] = 3;
      job["metadata"]["generation"] = 2;
    });
    EXPECT_EQ(Json::parse(request.body),
              Json::parse(R"({"metadata": {"uid": "u1"}, "spec": {"ps": {"replicas": 3}}})"));
    return HttpResponse{200, {}, R"({"kind": "TrainingJob"})"};
  });
  Waiting now = waiting_;
  now.wait = false;
  const auto told = jobs_->scale("fashion", {.ps = 3}, now);
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_THAT(*told, HasSubstr("fashion: ps "));
  EXPECT_THAT(*told, HasSubstr(" -> 3"));
}

TEST_F(ClusterJobsTest, TheApiserversRefusalIsTold) {
  server_.refuse(fmt::format("PATCH {}/scale", kJobPath), 422, "Invalid",
                 "TrainingJob \"fashion\" is invalid: spec.worker.replicas: above maxReplicas");
  const Status refused = jobs_->scale("fashion", {.workers = 9}, waiting_).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_THAT(textOf(refused), HasSubstr("spec.worker.replicas: above maxReplicas"));
}

TEST_F(ClusterJobsTest, SuspendingAndResumingPatchTheWish) {
  server_.on(std::string("PATCH ") + kJobPath, [this](const HttpRequest& request) {
    change([&](Json& job) {
      const bool suspend = Json::parse(request.body)["spec"]["runPolicy"]["suspend"].get<bool>();
      job["spec"]["runPolicy"]["suspend"] = suspend;
      job["status"]["state"] = suspend ? "Suspended" : "Running";
    });
    return HttpResponse{200, {}, sampleJob().dump()};
  });
  EXPECT_EQ(jobs_->suspend("fashion", waiting_).value(), "fashion suspended at step 112");
  EXPECT_EQ(
      sent(std::string("PATCH ") + kJobPath),
      Json::parse(R"({"metadata": {"uid": "u1"}, "spec": {"runPolicy": {"suspend": true}}})"));
  EXPECT_EQ(jobs_->suspend("fashion", waiting_).value(),
            "fashion is suspended already, at step 112");
  EXPECT_EQ(jobs_->resume("fashion", waiting_)->text, "fashion goes on, step 200");
  EXPECT_EQ(jobs_->resume("fashion", waiting_)->text, "fashion is not suspended, step 200");
  EXPECT_EQ(server_.requests("PATCH").size(), 2u) << "what is so already is not written again";
}

TEST_F(ClusterJobsTest, ResumedAndOverBetweenTwoLooks) {
  for (const char* end : {"Succeeded", "Failed"}) {
    change([](Json& job) {
      job["spec"]["runPolicy"]["suspend"] = true;
      job["status"]["state"] = "Suspended";
    });
    server_.on(std::string("PATCH ") + kJobPath, [&](const HttpRequest&) {
      change([&](Json& job) {
        job["spec"]["runPolicy"]["suspend"] = false;
        job["status"]["state"] = end;
      });
      return HttpResponse{200, {}, sampleJob().dump()};
    });
    const auto resumed = jobs_->resume("fashion", waiting_);
    if (resumed.ok()) {
      EXPECT_STREQ(end, "Succeeded");
      EXPECT_EQ(resumed->text, "fashion went on and succeeded, step 200");
    } else {
      EXPECT_EQ(textOf(resumed.status()), "'fashion' went on and ended: Failed");
    }
    EXPECT_FALSE(jobs_->resume("fashion", waiting_).ok()) << "it has ended already";
  }
}

TEST_F(ClusterJobsTest, WhatGoesWithAJobIsSaid) {
  EXPECT_EQ(jobs_->toRemove("fashion")->goes, "its pods; what is in its volumes stays");
  change([](Json& job) {
    Json& worker = job["spec"]["worker"];
    worker["persistentVolumeClaimRetentionPolicy"] = {{"whenDeleted", "Delete"}};
  });
  EXPECT_EQ(jobs_->toRemove("fashion")->goes, "its pods; what is in its volumes stays")
      << "there are no claims";
  change([](Json& job) {
    const Json claim = {{"metadata", {{"name", "data"}}}, {"spec", Json::object()}};
    job["spec"]["worker"]["volumeClaimTemplates"] = Json::array({claim});
  });
  EXPECT_EQ(jobs_->toRemove("fashion")->goes,
            "its pods and volume claims of its tasks; what is in its other volumes stays");
}

TEST_F(ClusterJobsTest, DeletingMeansTheOneThatWasSeen) {
  const Doomed doomed = jobs_->toRemove("fashion").value();
  EXPECT_EQ(doomed.shown, "trainingjob fashion in namespace lab");
  server_.refuse(std::string("DELETE ") + kJobPath, 409, "Conflict", "the uid is another");
  EXPECT_THAT(textOf(jobs_->remove(doomed, {}).status()), HasSubstr("the uid is another"));
  const Json options = sent("DELETE");
  EXPECT_EQ(options["preconditions"]["uid"], "u1");
  EXPECT_EQ(options["propagationPolicy"], "Foreground");
  server_.answer(std::string("DELETE ") + kJobPath, sampleJob());
  RemoveOptions short_wait{false, {true, std::chrono::milliseconds(1)}};
  EXPECT_THAT(textOf(jobs_->remove(doomed, short_wait).status()),
              HasSubstr("'fashion' is still there after 0 s"));
  change([](Json& job) { job["metadata"]["uid"] = "u2"; });
  EXPECT_EQ(jobs_->remove(doomed, {}).value(), "fashion deleted") << "another one is there";
  server_.refuse(std::string("GET ") + kJobPath, 404, "NotFound", "not found");
  EXPECT_EQ(jobs_->remove(doomed, {}).value(), "fashion deleted");
}

TEST_F(ClusterJobsTest, WhatIsNotThere) {
  EXPECT_THAT(textOf(jobs_->list().status()),
              HasSubstr("https://here knows no TrainingJobs: is Trainyard's chart installed?"));
  server_.answer("GET /apis/trainyard.dev/v1alpha1/namespaces/lab/trainingjobs",
                 {{"items", Json::array({sampleJob()})}});
  server_.refuse("GET /apis/trainyard.dev/v1alpha1/namespaces/lab/trainingjobs/fashon", 404,
                 "NotFound", "not found");
  const Status unknown = jobs_->read("fashon").status();
  EXPECT_TRUE(absl::IsNotFound(unknown));
  EXPECT_EQ(textOf(unknown), "there is no job 'fashon' in namespace lab: did you mean 'fashion'?");
}

TEST_F(ClusterJobsTest, OneUnreadableJobDoesNotHideTheOthers) {
  Json broken = sampleJob();
  broken["metadata"]["name"] = "broken";
  broken["spec"]["worker"]["replicas"] = "many";
  server_.answer("GET /apis/trainyard.dev/v1alpha1/namespaces/lab/trainingjobs",
                 {{"items", Json::array({broken, sampleJob()})}});
  const auto list = jobs_->list();
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_EQ(list->jobs.size(), 1u);
  ASSERT_EQ(list->problems.size(), 1u);
  EXPECT_THAT(textOf(list->problems[0]), HasSubstr("broken: "));
}

// --- submit

TEST_F(ClusterJobsTest, SubmittingAppliesWhatIsWritten) {
  server_.refuse(std::string("GET ") + kJobPath, 404, "NotFound", "not found");
  server_.answer(std::string("PATCH ") + kJobPath, sampleJob());
  const Json written = {{"metadata", {{"name", "fashion"}}}, {"spec", {{"ps", {{"replicas", 1}}}}}};
  SubmitOptions options;
  options.ns = "lab";
  EXPECT_EQ(submitJob(*client_, written, options)->what, "created");
  const HttpRequest request = server_.requests("PATCH").back();
  EXPECT_THAT(request.target, HasSubstr("fieldManager=trainyard&"));
  EXPECT_THAT(request.target, Not(HasSubstr("force")));
  EXPECT_THAT(request.target, HasSubstr("fieldValidation=Strict"));
  EXPECT_THAT(request.target, Not(HasSubstr("dryRun")));
  EXPECT_EQ(Json::parse(request.body), Json::parse(R"({"apiVersion": "trainyard.dev/v1alpha1",
      "kind": "TrainingJob", "metadata": {"name": "fashion", "namespace": "lab"},
      "spec": {"ps": {"replicas": 1}}})"));
  put(sampleJob());
  EXPECT_EQ(submitJob(*client_, written, options)->what, "unchanged");
  change([](Json& job) { job["metadata"]["resourceVersion"] = "6"; });
  options.dry_run = true;
  EXPECT_EQ(submitJob(*client_, written, options)->what, "configured");
  EXPECT_THAT(server_.requests("PATCH").back().target, HasSubstr("dryRun=All"));
  change([](Json& job) { job["metadata"]["deletionTimestamp"] = "2023-11-14T22:13:20Z"; });
  EXPECT_TRUE(absl::IsFailedPrecondition(submitJob(*client_, written, options).status()));
}

TEST_F(ClusterJobsTest, ACommandBecomesAJobOfTheCluster) {
  server_.refuse(std::string("GET ") + kJobPath, 404, "NotFound", "not found");
  server_.answer(std::string("PATCH ") + kJobPath, sampleJob());
  const auto written = documentOf({.command = {"python3", "train.py"},
                                   .processes = 16,
                                   .name = "fashion",
                                   .image = "registry/x:1",
                                   .gpus = 1});
  ASSERT_TRUE(written.ok()) << written.status();
  SubmitOptions options;
  options.ns = "lab";
  EXPECT_EQ(submitJob(*client_, Json(*written), options)->what, "created");
  EXPECT_EQ(sent("PATCH"), Json::parse(R"({"apiVersion": "trainyard.dev/v1alpha1",
      "kind": "TrainingJob", "metadata": {"name": "fashion", "namespace": "lab"},
      "spec": {"strategy": "AllReduce", "runPolicy": {"successPolicy": "AllWorkers"},
               "worker": {"replicas": 16, "restartPolicy": "Never", "template": {"spec": {
                   "containers": [{"name": "task", "image": "registry/x:1",
                                   "command": ["python3", "train.py"],
                                   "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}}}})"));
}

TEST_F(ClusterJobsTest, ASubmissionHasOneNamespace) {
  const Json written = {{"metadata", {{"name", "fashion"}, {"namespace", "prod"}}}};
  SubmitOptions options{"lab", true};
  EXPECT_THAT(textOf(submitJob(*client_, written, options).status()),
              HasSubstr("metadata.namespace: the file says prod, --namespace lab"));
  EXPECT_THAT(server_.requests(""), testing::IsEmpty());
}

TEST(WrittenJobTest, HoldsWhatTheFileSaysAndNoMore) {
  const TempDir dir;
  const std::string path = (dir.path() / "job.yaml").string();
  ASSERT_TRUE(writeFileAtomically(path, R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: fashion, uid: u1, resourceVersion: "7", labels: {team: vision}, managedFields: []}
spec:
  ps: {replicas: 2.0}
  worker: {replicas: 2, minReplicas: 1}
  training:
    model: {name: mlp, hidden: [8]}
    data: {format: synthetic, shape: [4, 4, 1], classes: 3, samples: 64, evalSamples: 16}
    batchSize: 8
    steps: 700
    optimizer: {name: SGD, learningRate: 0.5, momentum: null}
status: {state: Running}
)")
                  .ok());
  control::ParseOptions options;
  options.overrides = {{"worker.replicas", "3"}, {"worker.minReplicas", ""}};
  nlohmann::ordered_json written;
  const auto job = control::loadWrittenJob(path, options, nullptr, &written);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec().strategy(), "ParameterServer") << "a default";
  EXPECT_EQ(Json(written), Json::parse(R"({
    "apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob",
    "metadata": {"name": "fashion", "labels": {"team": "vision"}},
    "spec": {"ps": {"replicas": 2}, "worker": {"replicas": 3},
             "training": {"model": {"name": "mlp", "hidden": [8]},
               "data": {"format": "synthetic", "shape": [4, 4, 1], "classes": 3, "samples": 64,
                        "evalSamples": 16},
               "batchSize": 8, "steps": 700,
               "optimizer": {"name": "SGD", "learningRate": 0.5}}}})"));
  EXPECT_TRUE(written["spec"]["ps"]["replicas"].is_number_integer());
}

// --- which cluster

TEST(FindClusterTest, LooksWhereKubectlLooks) {
  const TempDir home;
  ClusterFlags flags;
  KubeEnvironment environment;
  environment.home = home.path().string();
  EXPECT_THAT(std::string(findCluster(flags, environment).status().message()),
              HasSubstr("no cluster is known"));
  const auto write = [&](const std::string& name, const std::string& server) {
    std::filesystem::create_directories((home.path() / name).parent_path());
    const std::string text = fmt::format(
        "current-context: a\ncontexts: [{{name: a, context: {{cluster: c, namespace: lab}}}}]\n"
        "clusters: [{{name: c, cluster: {{server: 'https://{}'}}}}]\n",
        server);
    EXPECT_TRUE(writeFileAtomically(home.path() / name, text).ok());
    return (home.path() / name).string();
  };
  write(".kube/config", "usual");
  EXPECT_EQ(findCluster(flags, environment)->server, "https://usual");
  EXPECT_EQ(findCluster(flags, environment)->ns, "lab");
  environment.kubeconfig = write("env", "variable");
  EXPECT_EQ(findCluster(flags, environment)->server, "https://variable");
  flags.kubeconfig = write("flag", "flag");
  EXPECT_EQ(findCluster(flags, environment)->server, "https://flag");
  flags.context = "b";
  EXPECT_THAT(std::string(findCluster(flags, environment).status().message()),
              HasSubstr("no 'b' among contexts"));
  flags.kubeconfig.clear();
  environment.kubeconfig.clear();
  environment.home.clear();
  environment.service_host = "10.0.0.1";
  EXPECT_THAT(std::string(findCluster(flags, environment).status().message()),
              HasSubstr("--context"));
}

TEST(ClusterFlagsTest, AreSaidAgain) {
  ClusterFlags flags;
  EXPECT_FALSE(flags.given());
  flags.context = "east";
  EXPECT_TRUE(flags.given());
  EXPECT_EQ(flags.again("lab"), " -n lab --context east");
}

}  // namespace
}  // namespace trainyard::cli
